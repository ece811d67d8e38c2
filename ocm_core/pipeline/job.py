"""The job of a stage: what goes in, where it writes, and how one is run and recorded."""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.atomic import room_for
from ocm_core.launch import await_first
from ocm_core.pipeline import artifacts
from ocm_core.pipeline.artifacts import (
    Manifest,
    View,
    checked_folder,
    folder_of,
    manifest_if_whole,
    manifest_of,
    text_digest,
)
from ocm_core.pipeline.graph import Graph, graph_of, restrict
from ocm_core.pipeline.sources import check_loaded, digest, loaded, sources
from ocm_core.pipeline.stage import ALL, PHASES, Task
from ocm_core.pipeline.staging import StagingFolder, making, take_over
from ocm_core.pipeline.state import UP_TO_DATE, key_of, states
from ocm_core.progress import LOG, meter, track
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment

Device = Literal["auto", "cpu", "cuda", "mps"]


def available_device(requested: Device) -> str:
    """Return the device to compute on."""
    if requested != "auto":
        return requested
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


class MadeOf(NamedTuple):
    """What a piece of an artifact depends on: where its code begins, and all else as JSON."""

    modules: Collection[str]
    facts: Mapping[str, Any]


@cache
def _code(modules: frozenset[str]) -> str:
    return digest(sources(modules))


@dataclass(frozen=True)
class Inputs:
    """Artifacts of an experiment that are whole and up to date."""

    experiment: Experiment
    folders: Mapping[Task, Path]
    device: str = "cpu"

    def take(self, kind: type[View], part: str = "all") -> View:
        """Return an artifact that must be among the inputs."""
        if (artifact := self.find(kind, part)) is not None:
            return artifact
        raise OcmError(f"{kind.task(part)} is not among the inputs of this stage: declare it")

    def find(self, kind: type[View], part: str = "all") -> View | None:
        """Return an artifact, or None if this experiment does not have it."""
        folder = self.folders.get(kind.task(part))
        return None if folder is None else kind(folder)

    def contents(self, task: Task, wanted: Callable[[str], bool] = bool) -> dict[str, str]:
        """Return the sha256 of an input's files with `wanted` names: facts for `Job.reuse`."""
        files = artifacts.read_manifest(self.folders[task]).files
        return {f"{task}/{name}": files[name].sha256 for name in files if wanted(name)}

    def all(self, kind: type[View]) -> dict[str, View]:
        """Return every part of a stage that is among the inputs."""
        found = self.folders.items()
        return {task.part: kind(folder) for task, folder in found if task.stage == kind.stage}


@dataclass(frozen=True)
class Job(Inputs):
    """One task, with the parameters that its stage declares and no others.

    A stage writes into `folder`, which may hold finished pieces of an interrupted run of the same
    job, and keeps in `state` what it would resume from.
    """

    task: Task = Task("")  # noqa: RUF009  # immutable
    folder: Path = Path()
    state: Path = Path()
    outputs: Path = Path()  # files here, by their paths in the project, are put in place at the end
    earlier: Path | None = None  # the artifact that this one will replace
    threads: int = 1
    notes: dict[str, Any] = field(default_factory=dict)
    pieces: dict[str, str] = field(default_factory=dict)

    log = LOG
    progress = staticmethod(track)
    meter = staticmethod(meter)

    @property
    def part(self) -> str:
        return self.task.part

    def note(self, **values: Any) -> None:
        """Add JSON values to the manifest: shapes, counts, provenance, never times or hosts."""
        self.notes.update(values)

    def reuse(self, piece: str, files: Collection[str], made_of: MadeOf) -> bool:
        """Take over the files of a piece that the artifact before this one made of the same.

        The manifest records a digest of modules and facts for every piece, so that a change
        elsewhere does not make it again.
        """
        key = {"sources": _code(frozenset(made_of.modules)), "facts": made_of.facts}
        self.pieces[piece] = text_digest(key)
        before = self._before
        if before is None or before.pieces.get(piece) != self.pieces[piece]:
            return False
        if not before.files.keys() >= set(files):
            return False
        recorded = {name: before.files[name] for name in files}
        return take_over(require(self.earlier), recorded, self.folder)

    @cached_property
    def _before(self) -> Manifest | None:
        return None if self.earlier is None else manifest_if_whole(self.earlier)


def open_inputs(graph: Graph, needed: Collection[Task], device: Device = "auto") -> Inputs:
    """Return artifacts of an experiment for use outside of a job."""
    return Inputs(graph.experiment, checked_folders(graph, needed), available_device(device))


def checked_folders(graph: Graph, needed: Collection[Task]) -> dict[Task, Path]:
    """Return the folders of artifacts that are whole and up to date; others are refused.

    Snakemake knows only what it ran itself: an artifact from elsewhere, or a parameter that was
    changed while a run was under way, would otherwise end in results of mixed origin.
    """
    name, state = graph.experiment.name, states(graph, needed)
    if stale := {task: state[task] for task in needed if state[task] != UP_TO_DATE}:
        lines = [f"{folder_of(name, task)}: {how}" for task, how in stale.items()]
        manifests = " ".join(str(manifest_of(name, task)) for task in stale)
        force = "" if set(stale.values()) == {"missing"} else "--force "
        again = f"`snakemake --cores all {force}{manifests}` makes what is needed"
        raise OcmError("\n".join([*lines, again]))
    return {task: checked_folder(name, task) for task in needed}


def run_phase(name: str, phase: str, device: Device, threads: int) -> None:
    """Run every task of a phase, or of all, that is not up to date, in this process."""
    graph = graph_of(name)
    for each in PHASES if phase == ALL else (phase,):
        (artifacts.ROOT / name / each).mkdir(parents=True, exist_ok=True)  # DVC expects it
    for task in graph.tasks if phase == ALL else graph.of_phase(phase):
        if states(graph, [task])[task] != UP_TO_DATE:
            run_task(name, task.stage, task.part, device, threads)


def run_task(name: str, stage: str, part: str, device: Device, threads: int) -> None:
    """Make one artifact, whatever there is already; an interrupted run is resumed."""
    torch.set_num_threads(threads)
    graph = graph_of(name)
    before = loaded()  # with what composing parameters takes
    task, rank = graph.find(stage, part), current_rank()
    if rank.world_size > 1 and not graph.stage(task).shared:
        raise OcmError(f"stage {stage!r} is done by one process; give it one GPU, or none")
    with ExitStack() as held:
        folder = folder_of(name, task)
        waited = rank.is_first and held.enter_context(making(folder))
        if rank.agreed(lambda: waited and states(graph, [task])[task] == UP_TO_DATE):
            return  # the other run has made it
        folders = rank.agreed(lambda: checked_folders(graph, graph.inputs[task]))
        staging = StagingFolder(name, task, rank.agreed(lambda: key_of(graph, task)))
        if not rank.agreed(staging.prepare):
            return
        await_first(rank, staging.state)
        visible = restrict(graph.experiment, graph.keys(task), stage)
        places = (staging.artifact, staging.state, staging.outputs, staging.place)
        job = Job(visible, folders, available_device(device), task, *places, threads)
        with room_for(staging.root):
            import_module(f"ocm_core.stages.{stage}").run(job)
            check_loaded(before, graph.modules(task), stage)
            rank.wait()
            if rank.is_first:  # sums of several in another order have other last digits
                summing = {"processes": rank.world_size, "threads": threads}
                several = {name: count for name, count in summing.items() if count > 1}
                staging.finish(job.notes | several, job.pieces)
