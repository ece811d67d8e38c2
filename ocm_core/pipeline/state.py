"""Whether an artifact is what the present parameters, sources and inputs would make."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ocm_core.io.checksums import sha256_of
from ocm_core.params.restrict import values
from ocm_core.pipeline.artifacts import (
    Key,
    folder_of,
    manifest_if_whole,
    manifest_of,
    text_digest,
)
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.sources import digest
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.user_files import listing
from ocm_core.text import listed

UP_TO_DATE, MISSING = "up to date", "missing"
_NAMED = 2  # inputs that a reason names


def parameters(graph: Graph, task: Task) -> str:
    return text_digest(values(graph.experiment, graph.keys(task)))


def code(graph: Graph, task: Task) -> str:
    return digest(graph.source_files(task))


def key_of(graph: Graph, task: Task) -> Key:
    """Return what decides the bytes of an artifact; its inputs must exist."""
    name, paths = graph.experiment.name, graph.stage(task).user_files(graph.experiment)
    return Key(
        parameters=parameters(graph, task),
        sources=code(graph, task),
        inputs={str(t): sha256_of(manifest_of(name, t)) for t in graph.inputs[task]},
        user_files=listing(paths, times=False),
    )


def states(graph: Graph, wanted: Collection[Task] | None = None) -> dict[Task, str]:
    """Return `up to date`, `missing`, or `stale: why` for tasks and all that they rest on.

    What follows from something stale is stale, as Snakemake has it: once that is made again, its
    manifest may be another. None asks for every task of the experiment.
    """
    state: dict[Task, str] = {}
    for task in graph.ancestry(graph.tasks if wanted is None else wanted):
        state[task] = _state(graph, task, state)
    return state


def _state(graph: Graph, task: Task, state: Mapping[Task, str]) -> str:
    if not manifest_of(graph.experiment.name, task).exists():
        return MISSING
    upstream = {str(node): state[node].partition(":")[0] for node in graph.inputs[task]}
    reasons = list(_behind(upstream))
    if MISSING not in upstream.values():  # a key opens the inputs' manifests
        reasons = [*_changed(graph, task), *reasons]
    return f"stale: {'; '.join(reasons)}" if reasons else UP_TO_DATE


def _changed(graph: Graph, task: Task) -> Iterator[str]:
    """Name what is not as it was when the artifact was made."""
    recorded = manifest_if_whole(folder_of(graph.experiment.name, task))
    if recorded is None:
        yield "its manifest is damaged"
        return
    now, then = key_of(graph, task).model_dump(), recorded.key.model_dump()
    names = [name.replace("_", " ") for name in now if now[name] != then[name]]
    if names:
        yield f"made with other {', '.join(names)}"


def _behind(upstream: Mapping[str, str]) -> Iterator[str]:
    """`heads/trained is stale`; of many inputs, the first."""
    for how in (MISSING, "stale"):
        names = [name for name, state in upstream.items() if state == how]
        shown = names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
        if names:
            yield f"{listed(shown)} {'is' if len(names) == 1 else 'are'} {how}"
