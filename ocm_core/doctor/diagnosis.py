"""Collect and print what `ocm doctor` says: the computer, and what an experiment needs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any

from ocm_core.cells import cells_of
from ocm_core.checkpoints.registry import FOLDER, checkpoint_named
from ocm_core.doctor import cost
from ocm_core.doctor.cost import duration, metric
from ocm_core.doctor.machine import MISSING, differing_packages, diffusers_problem, machine
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive
from ocm_core.io.fetch import PublishedFile
from ocm_core.io.reading import unlike_its_name
from ocm_core.params.compose import compose
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.state import UP_TO_DATE, states
from ocm_core.sampling.checks import check_solvers
from ocm_core.schema.experiment import Experiment
from ocm_core.stages.fetch_data import ARCHIVES
from ocm_core.text import plural, text_table

IN_PLACE, DOWNLOAD = "in place", "to be downloaded by the run"
FLOAT32, INT64 = 4, 8  # bytes
LONG = 30 * 24 * 3600.0  # seconds that nobody waits for
FIRST_LOOK = "_fast"  # the preset


@dataclass(frozen=True)
class NeededFile:
    """A file that is read, as published and as it is on disk."""

    path: str
    bytes: int | None  # as published; None: not stated
    state: str
    remedy: str


@dataclass(frozen=True)
class TaskReport:
    """A task of the graph: its state, its work and the time that it takes here."""

    stage: str
    part: str
    phase: str
    state: str
    passes: float
    operations: float
    seconds: float


@dataclass(frozen=True)
class ExperimentReport:
    """The tasks of an experiment, and what those that are not done read and write."""

    name: str
    tasks: list[TaskReport]
    files: list[NeededFile]
    bytes: dict[str, int | None]  # still to be written, by stage; None: not known
    pace: str
    first_look: float | None  # operations with the preset, where all of it takes weeks here


@dataclass(frozen=True)
class Diagnosis:
    """Everything that `ocm doctor` reports."""

    machine: dict[str, Any]
    packages: list[str]  # those that are not as they are pinned
    experiment: ExperimentReport | None
    problems: list[str]  # what keeps the experiment from running to its end


def diagnose(graph: Graph | None) -> Diagnosis:
    """Look at this computer, and at what an experiment needs."""
    here, differing, broken = machine(), differing_packages(), diffusers_problem()
    problems = [f"{line}; run `make env`" for line in differing if f" {MISSING}, " in line]
    if broken:
        problems.append(broken)
    elif graph:
        check_solvers(graph.experiment)
    if not graph:
        return Diagnosis(here, differing, None, problems)
    experiment, state, device = graph.experiment, states(graph), cost.this_device()
    tasks = []
    for task in graph.tasks:
        passes, network = cost.work_of(experiment, task)
        work = (passes, passes * network.operations, cost.seconds(experiment, task, device))
        tasks.append(TaskReport(*task, graph.stage(task).phase, state[task], *work))
    files, space = needed_files(graph, state), to_write(experiment, state)
    if download := sum(file.bytes or 0 for file in files if file.state == DOWNLOAD):
        space["download"] = download
    pace, free = str(cost.pace_of(experiment, device)), here["free_disk"]
    if (needed := sum(count or 0 for count in space.values())) > free:
        problems.append(f"disk: {_size(needed)} still to be written, {_size(free)} free")
    stopping = [file for file in files if file.state not in (IN_PLACE, DOWNLOAD)]
    problems += [f"{file.path}: {file.state}; {file.remedy}" for file in stopping]
    first_look = _first_look(experiment.name) if _to_do(tasks) > LONG else None
    report = ExperimentReport(experiment.name, tasks, files, space, pace, first_look)
    return Diagnosis(here, differing, report, problems)


def _first_look(name: str) -> float | None:
    """Return the operations of an experiment with the preset for a first look."""
    if FIRST_LOOK in name:
        return None
    graph = Graph(compose(f"{name}{FIRST_LOOK}"))
    works = (cost.work_of(graph.experiment, task) for task in graph.tasks)
    return sum(passes * network.operations for passes, network in works)


def _to_do(tasks: Sequence[TaskReport]) -> float:
    """Return the seconds that tasks take here which are not up to date."""
    return sum(task.seconds for task in tasks if task.state != UP_TO_DATE)


def needed_files(graph: Graph, states: Mapping[Task, str]) -> list[NeededFile]:
    """Return the files that tasks read which are not up to date; encoding reads archives, too."""
    waiting = [task for task in graph.tasks if states[task] != UP_TO_DATE]
    taken = [task for reader in waiting for task in graph.inputs[reader]]
    reading = {*waiting, *(task for task in taken if task.stage == "fetch_data")}
    stages = dict.fromkeys(task.stage for task in graph.tasks if task in reading)
    return [file for stage in stages for file in _files(graph.experiment, stage)]


def _files(experiment: Experiment, stage: str) -> Iterator[NeededFile]:
    """Yield the files that a stage of the phase `fetch` reads."""
    choice, latent = experiment.network.checkpoint, experiment.encode.latent
    if stage == "fetch_score" and choice and choice.origin == "published":
        entry = checkpoint_named(choice.name)
        valid = [entry.source(choice.file)] if choice.file else entry.sources
        files = [_file(source, FOLDER / entry.name, choice.url) for source in valid]
        yield next((file for file in files if Path(file.path).exists()), files[0])
    elif stage == "fetch_vae" and latent and latent.vae.origin == "published" and latent.vae.name:
        from ocm_core.latents.fetching import vae_named

        for source in vae_named(latent.vae.name).files:
            yield _file(source, FOLDER / latent.vae.name, latent.vae.url)
    elif stage == "fetch_features":
        from ocm_core.features import inception

        yield _file(inception.SOURCE, inception.FOLDER)
    elif stage == "fetch_reference" and experiment.features and experiment.features.reference:
        from ocm_core.features.published_reference import reference_named

        yield _file(reference_named(experiment.features.reference), ARCHIVES)
    elif stage == "fetch_data":
        for key, path in experiment.data.user_files().items():
            remedy = f"put it there, or correct data.{key}"
            yield NeededFile(str(path), None, IN_PLACE if path.exists() else "missing", remedy)
        for archive in experiment.data.needed_archives().values():
            yield _file(archive, ARCHIVES)


def _file(source: PublishedFile, folder: Path, url: str | None = None) -> NeededFile:
    if isinstance(source, Archive):
        source = source.at_hand(folder)
        folder /= source.kind
    path, state = folder / source.file, DOWNLOAD if url or source.url else "missing"
    if path.exists():
        size, state = path.stat().st_size, unlike_its_name(path) or IN_PLACE
        if source.bytes not in (None, size):
            state = f"{size} bytes instead of {source.bytes}"
    return NeededFile(str(path), source.bytes, state, source.remedy(path))


def to_write(experiment: Experiment, states: Mapping[Task, str]) -> dict[str, int | None]:
    """Return the bytes that are still to be written, by stage; None where nothing says how many."""
    waiting = [task for task, state in states.items() if state != UP_TO_DATE]
    stages = {task.stage for task in waiting}
    space = {"encode": encode_bytes(experiment)} if "encode" in stages else {}
    if parts := [task.part for task in waiting if task.stage == "sample"]:
        items = experiment.sample.count * sum(len(cells_of(experiment, part)) for part in parts)
        space["sample"] = items * prod(experiment.shape) * FLOAT32
    return space


def encode_bytes(experiment: Experiment) -> int | None:
    """Return the bytes of the encoded data set; None if its size is not declared."""
    latent = experiment.encode.latent
    try:
        sizes = experiment.data.count_items()
    except (NotImplementedError, OcmError):  # it does not declare them, or has no files yet
        return None
    flipped = sizes.get("train", 0) if experiment.encode.flips else 0
    width = FLOAT32 if experiment.levels is None else 1
    kept = 2 if latent and latent.posterior == "keep" else 1  # mean and deviation
    label = INT64 if experiment.data.classes else 0
    item = kept * prod(experiment.shape) * width + label + INT64  # and the index
    text = latent.text if latent else None
    prompts = (experiment.data.classes + 1) * text.numbers * FLOAT32 if text else 0
    return (sum(sizes.values()) + flipped) * item + prompts


def as_text(diagnosis: Diagnosis) -> str:
    """Return the diagnosis for people."""
    here, problems = diagnosis.machine, diagnosis.problems
    build = f"CUDA {here['cuda']}" if here["cuda"] else "without CUDA"
    room = f"{_size(here['memory'])} of memory, {_size(here['free_disk'])} of disk free"
    machine = [
        f"Python {here['python']}, torch {here['torch']} ({build}), {here['system']}",
        f"{plural(here['cores'], 'core')}, {room}",
        *(f"{name}, {_size(memory)}" for name, memory in here["gpus"].items()),
        *([] if here["gpus"] else ["no GPU: everything runs on the CPU"]),
        *diagnosis.packages,
    ]
    experiment = _experiment(diagnosis.experiment) if diagnosis.experiment else []
    heading = f"{plural(len(problems), 'problem')}:" if problems else "nothing is missing"
    parts = [machine, *experiment, [heading, *problems]]
    return "\n\n".join("\n  ".join(lines) for lines in parts)


def _experiment(report: ExperimentReport) -> Iterator[list[str]]:
    counts = Counter(task.state.partition(":")[0] for task in report.tasks)
    listed = ", ".join(f"{count} {state}" for state, count in counts.items())
    waiting = [task for task in report.tasks if task.state != UP_TO_DATE]
    to_do = f"to do: about {_time_to_do(report, waiting)}" if waiting else "nothing to do"
    yield [f"{report.name}: {plural(len(report.tasks), 'task')}, {listed}", to_do]
    how = f"{cost.EFFICIENCY:.0%} of its TF32 peak of {metric(cost.A100_PEAK)}FLOP/s"
    numbers = ("tasks", "network passes", "operations", "time here", "on one A100")
    groups = groupby(report.tasks, key=lambda task: (task.phase, task.stage, task.state))
    kinds = [*((kind, list(group)) for kind, group in groups), (("all", "", ""), report.tasks)]
    rows = [(*kind, str(len(group)), *_work(group)) for kind, group in kinds]
    table = text_table(("phase", "stage", "state", *numbers), rows, right=numbers)
    yield [f"tasks; the time on an A100 is computed at {how}", *table]
    if report.files:
        files = [(file.path, _size(file.bytes), file.state) for file in report.files]
        yield ["files to read", *text_table(("file", "size", "state"), files, right=("size",))]
    if report.bytes:
        heading = "disk still to be filled, without networks, features and DVC's copies"
        yield [heading, *(f"{stage}  {_size(count)}" for stage, count in report.bytes.items())]


def _time_to_do(report: ExperimentReport, waiting: Sequence[TaskReport]) -> str:
    """Return the time here; of what takes weeks here, that of a GPU, first with the preset."""
    here = _to_do(waiting)
    if here <= LONG:
        return f"{duration(here)} one by one, at {report.pace}"
    whole = sum(task.operations for task in waiting)
    looks = {report.name: whole}
    if report.first_look:
        looks = {f"{report.name}{FIRST_LOOK}, a first look": report.first_look, **looks}
    times = (f"{duration(n / cost.ASSUMED['cuda'])} for {name}" for name, n in looks.items())
    return f"{'; '.join(times)}; on one A100, computed; too long at {report.pace}"


def _work(tasks: Sequence[TaskReport]) -> tuple[str, ...]:
    """Return network passes, operations, the time left here and that of an A100."""
    passes, count = (sum(getattr(t, key) for t in tasks) for key in ("passes", "operations"))
    work = (metric(passes).strip(), f"{metric(count)}FLOP") if passes else ("", "")
    times = (duration(t) if t else "" for t in (_to_do(tasks), count / cost.ASSUMED["cuda"]))
    return (*work, *times)


def _size(count: int | None) -> str:
    return "unknown" if count is None else f"{metric(count)}B"
