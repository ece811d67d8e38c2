"""Run one task: check what goes in, hand the stage its job, record what came out."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.io.atomic import room_for
from ocm_core.params.restrict import restrict
from ocm_core.pipeline import artifacts
from ocm_core.pipeline.graph import Graph, graph_of
from ocm_core.pipeline.job import Device, Job
from ocm_core.pipeline.locks import making, reading
from ocm_core.pipeline.sources import check_loaded, loaded
from ocm_core.pipeline.stage import PHASES, Task
from ocm_core.pipeline.staging import StagingFolder
from ocm_core.pipeline.state import UP_TO_DATE, key_of, states

# When the run that this job belongs to looked at what there is; without it, when the job started.
PLANNED = "OCM_PLANNED"


def run_phase(name: str, phase: str, device: Device, threads: int) -> list[Task]:
    """Run every task of a phase that is not up to date, in this process; returns those."""
    graph, done = graph_of(name), []
    for task in graph.of_phase(phase):
        if states(graph, [task])[task] != UP_TO_DATE:
            run_task(name, task.stage, task.part, device, threads)
            done.append(task)
    if not graph.of_phase(phase):  # DVC expects the folder of every phase
        (artifacts.ROOT / name / phase).mkdir(parents=True, exist_ok=True)
    return done


def is_phase(name: str) -> bool:
    return name in PHASES


def run_task(name: str, stage: str, part: str, device: Device, threads: int) -> None:
    """Make one artifact, whatever there is already; an interrupted run is resumed."""
    import torch

    from ocm_core.distributed import current_rank
    from ocm_core.pipeline.wait_for_nfs import await_first

    planned = float(os.environ.get(PLANNED, time.time()))
    torch.set_num_threads(threads)
    graph = graph_of(name)
    before = loaded()  # with what composing parameters takes
    task = graph.find(stage, part)
    rank, upstream = current_rank(), graph.inputs[task]
    if rank.world_size > 1 and not graph.stage(task).shared:
        raise OcmError(f"stage {stage!r} is done by one process; give it one GPU, or none")
    with ExitStack() as held:
        if rank.is_first:
            held.enter_context(making(artifacts.folder_of(name, task)))
            for node in upstream:
                held.enter_context(reading(artifacts.folder_of(name, node)))
        folders = rank.agreed(lambda: _checked(graph, upstream))
        key = rank.agreed(lambda: key_of(graph, task))
        staging = StagingFolder(name, task, key)
        if not rank.agreed(lambda: staging.prepare(planned)):
            return
        await_first(rank, staging.state)
        job = Job(
            experiment=restrict(graph.experiment, graph.keys(task), stage),
            folders=folders,
            requested_device=device,
            task=task,
            folder=staging.artifact,
            state=staging.state,
            outputs=staging.outputs,
            earlier=staging.earlier,
            threads=threads,
        )
        with room_for(staging.root):
            _run_stage(job, graph.modules(task), before)
            rank.wait()
            if rank.is_first:
                staging.finish(job.notes | _several(rank.world_size, threads), job.pieces)


def _several(processes: int, threads: int) -> dict[str, int]:
    """Note how many summed together: sums in another order have other last digits."""
    counts = {"processes": processes, "threads": threads}
    return {name: count for name, count in counts.items() if count > 1}


def _checked(graph: Graph, upstream: list[Task]) -> dict[Task, Path]:
    """Return the folders of inputs that are whole and up to date.

    Snakemake knows only what it ran itself: an artifact from elsewhere, or a parameter that was
    changed while a run was under way, would otherwise end in results of mixed origin.
    """
    name, state = graph.experiment.name, states(graph, upstream)
    folders = {task: artifacts.checked_folder(name, task) for task in upstream}
    for task in upstream:
        if state[task] != UP_TO_DATE:
            again = artifacts.remake(artifacts.manifest_of(name, task))
            raise OcmError(f"{folders[task]}: {state[task]}; {again}")
    return folders


def _run_stage(job: Job, declared: list[str], before: set[str]) -> None:
    module = import_module(f"ocm_core.stages.{job.task.stage}")
    module.run(job)
    check_loaded(before, declared, job.task.stage)
