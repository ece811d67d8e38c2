"""Whether artifacts and results are what the present parameters, sources and inputs would make."""

import hashlib
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ocm_core.io.checksums import sha256_of
from ocm_core.io.image_files import FileEntry, folder_entries
from ocm_core.io.reading import read_json_object
from ocm_core.pipeline import artifacts
from ocm_core.pipeline.artifacts import Key, folder_of, manifest_of, text_digest
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.sources import digest
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.staging import SUFFIX

UP_TO_DATE, MISSING = "up to date", "missing"
PROVENANCE = "provenance.json"
_DIGITS = 16


def parameters(graph: Graph, task: Task) -> str:
    """Return a digest of the parameters that a task reads."""
    return text_digest(graph.values(graph.keys(task)))


def code(graph: Graph, task: Task) -> str:
    """Return a digest of a task's source files."""
    return digest(graph.source_files(task))


def user_files(graph: Graph, task: Task, *, times: bool) -> str | None:
    """Return a digest of names and sizes (with `times`: and times) of the user's files, if any."""
    places = [Path(p).expanduser() for p in graph.stage(task).user_files(graph.experiment)]
    if not places or not all(place.exists() for place in places):
        return None
    found = hashlib.sha256()
    for place in places:
        alone = FileEntry(place.name, (known := place.stat()).st_size, known.st_mtime_ns)
        for entry in sorted(folder_entries(place)) if place.is_dir() else [alone]:
            told = entry if times else entry[:2]
            found.update(f"{told}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def key_of(graph: Graph, task: Task) -> Key:
    """Return what decides the bytes of an artifact; its inputs must exist."""
    name = graph.experiment.name
    return Key(
        parameters=parameters(graph, task),
        sources=code(graph, task),
        inputs={str(t): sha256_of(manifest_of(name, t)) for t in graph.inputs[task]},
        user_files=user_files(graph, task, times=False),
    )


def states(graph: Graph, wanted: Collection[Task] | None = None) -> dict[Task, str]:
    """Return `up to date`, `missing`, or `stale: why` for tasks and all that they rest on.

    What follows from something stale is stale, as Snakemake has it: once that is made again, its
    manifest may be another. None asks for every task of the experiment.
    """
    state: dict[Task, str] = {}
    for task in graph.ancestry(graph.tasks if wanted is None else wanted):
        if not manifest_of(graph.experiment.name, task).exists():
            state[task] = MISSING
        else:
            reasons = "; ".join(_reasons(graph, task, state))
            state[task] = f"stale: {reasons}" if reasons else UP_TO_DATE
    return state


def _reasons(graph: Graph, task: Task, state: Mapping[Task, str]) -> Iterator[str]:
    """Name what is not as it was when the artifact was made, and inputs that come first."""
    upstream = {node: state[node].partition(":")[0] for node in graph.inputs[task]}
    recorded = artifacts.manifest_if_whole(folder_of(graph.experiment.name, task))
    if recorded is None:
        yield "its manifest is damaged"
    elif MISSING not in upstream.values():  # a key opens the inputs' manifests
        now, then = key_of(graph, task).model_dump(), recorded.key.model_dump()
        if names := [name.replace("_", " ") for name in now if now[name] != then[name]]:
            yield f"made with other {', '.join(names)}"
    if recorded and (gone := [file for file in recorded.outputs if not Path(file).exists()]):
        yield f"{gone[0]} is missing"
    for how in (MISSING, "stale"):
        if behind := [str(node) for node, found in upstream.items() if found == how]:
            more = f" and {len(behind) - 1} more are" if len(behind) > 1 else " is"
            yield f"{behind[0]}{more} {how}"


def abandoned(graph: Graph) -> Iterator[tuple[Path, int]]:
    """Yield folders that an interrupted run left and that no run would resume, with their size."""
    for root in sorted((artifacts.ROOT / graph.experiment.name).glob(f"*/*/.*{SUFFIX}")):
        task, key = Task(root.parent.name, root.name[1 : -len(SUFFIX)]), root / "key"
        if task in graph.tasks:
            if MISSING in states(graph, graph.inputs[task]).values():
                continue  # nobody can tell before its inputs are there
            if key.is_file() and key.read_text(errors="replace") == key_of(graph, task).digest:
                continue
        yield root, sum(file.stat().st_size for file in root.rglob("*") if file.is_file())


def number_digests(graph: Graph) -> dict[str, Any]:
    """Return a digest per parameter key, and one of the code, of all that evaluations rest on."""
    tasks = graph.ancestry(graph.of_phase("evaluate"))
    keys = {key for task in tasks for key in graph.keys(task)}
    whole = {key for key in keys if not any(key.startswith(f"{other}.") for other in keys)}
    found = {key: text_digest(value)[:_DIGITS] for key, value in graph.values(whole).items()}
    return {"parameters": found, "sources": digest(_number_files(graph))[:_DIGITS]}


def _number_files(graph: Graph) -> list[Path]:
    tasks = graph.ancestry(graph.of_phase("evaluate"))
    return sorted({file for task in tasks for file in graph.source_files(task)})


def last_commit(graph: Graph) -> str | None:
    """Return the last commit that changed the code of the numbers; None outside of a checkout."""
    files = map(str, _number_files(graph))
    command = ["git", "log", "-1", "--format=%h", "--abbrev=12", "--", *files]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return said.strip() or None


def results_state(graph: Graph, reports: Path) -> str:
    """Return `up to date`, `missing`, or `stale: why` for the results in `reports/NAME/`."""
    file = reports / graph.experiment.name / PROVENANCE
    if not file.exists():
        return MISSING
    recorded = read_json_object(file, "restore it from Git, or run the experiment")
    now, then = number_digests(graph), recorded.get("parameters")
    then = then if isinstance(then, dict) else {}
    changed = [key for key, value in now["parameters"].items() if then.get(key) != value]
    changed += [] if recorded.get("sources") == now["sources"] else ["sources"]
    return f"stale: made with other {', '.join(changed)}" if changed else UP_TO_DATE
