"""Run one task: check what goes in, hand the stage its job, record what came out."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module

import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.atomic import room_for
from ocm_core.params.restrict import restrict
from ocm_core.pipeline import artifacts
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.job import Device, Job, checked_folders
from ocm_core.pipeline.launch import await_first
from ocm_core.pipeline.sources import check_loaded, loaded
from ocm_core.pipeline.staging import StagingFolder, making
from ocm_core.pipeline.state import UP_TO_DATE, key_of, states


def run_phase(name: str, phase: str, device: Device, threads: int) -> None:
    """Run every task of a phase that is not up to date, in this process."""
    graph = graph_of(name)
    (artifacts.ROOT / name / phase).mkdir(parents=True, exist_ok=True)  # DVC expects it
    for task in graph.of_phase(phase):
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
        folder = artifacts.folder_of(name, task)
        waited = rank.is_first and held.enter_context(making(folder))
        if rank.agreed(lambda: waited and states(graph, [task])[task] == UP_TO_DATE):
            return  # the other run has made it
        folders = rank.agreed(lambda: checked_folders(graph, graph.inputs[task]))
        staging = StagingFolder(name, task, rank.agreed(lambda: key_of(graph, task)))
        if not rank.agreed(staging.prepare):
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
            earlier=staging.place,
            threads=threads,
        )
        with room_for(staging.root):
            import_module(f"ocm_core.stages.{stage}").run(job)
            check_loaded(before, graph.modules(task), stage)
            rank.wait()
            if rank.is_first:  # sums of several in another order have other last digits
                summing = {"processes": rank.world_size, "threads": threads}
                several = {name: count for name, count in summing.items() if count > 1}
                staging.finish(job.notes | several, job.pieces)
