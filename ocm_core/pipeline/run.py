"""Run one stage: check what goes in, hand the stage its job, record what came out."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.disk import room_for
from ocm_core.params.resolved import load, resolved_file
from ocm_core.params.restrict import restrict
from ocm_core.pipeline import manifests, table
from ocm_core.pipeline.job import Device, Job
from ocm_core.pipeline.locks import making, reading
from ocm_core.pipeline.shared_view import await_first
from ocm_core.pipeline.sources import check_loaded, loaded
from ocm_core.pipeline.staleness import fingerprint, states
from ocm_core.pipeline.working import WorkingFolder
from ocm_core.schema.experiment import Experiment

# When the run that this job belongs to looked at what there is; without it, when the job started.
PLANNED = "OCM_PLANNED"


def run(name: str, stage: str, part: str, device: Device, threads: int) -> None:
    planned = float(os.environ.get(PLANNED, time.time()))
    torch.set_num_threads(threads)
    before = loaded()
    experiment = load(name)
    task = table.find(experiment, stage, part)
    declared = table.modules(experiment, task)
    restricted = restrict(experiment, table.reads(experiment, task), stage)
    _check_methods(restricted, declared)
    rank = current_rank()
    if rank.world_size > 1 and not table.BY_NAME[stage].shared:
        raise OcmError(f"stage {stage!r} is done by one process; give it one GPU, or none")
    outputs, upstream = table.outputs(experiment, task), table.inputs(experiment, task)
    with ExitStack() as held:
        if rank.is_first:
            held.enter_context(making(manifests.folder_of(name, task)))
            for node in upstream:
                held.enter_context(reading(manifests.folder_of(name, node)))
        inputs = rank.agreed(lambda: _inputs(experiment, upstream))
        facts = rank.agreed(lambda: fingerprint(experiment, task))
        working = WorkingFolder(name, task, facts, tuple(outputs.values()))
        if not rank.agreed(lambda: working.prepare(planned)):
            return
        await_first(rank, working.state)
        job = Job(
            experiment=restricted,
            stage=stage,
            part=part,
            inputs=inputs,
            folder=working.artifact,
            state=working.state,
            outputs={k: working.staged[path] for k, path in outputs.items()},
            requested_device=device,
            threads=threads,
        )
        with room_for(working.root):
            _run_stage(job, declared, before)
            rank.wait()
            if rank.is_first:
                working.finish({**job.notes, **_several(rank.world_size, threads)})


def _several(processes: int, threads: int) -> dict[str, int]:
    """What sums in another order than one thread of one process, and so in other last digits."""
    counts = {"processes": processes, "threads": threads}
    return {name: count for name, count in counts.items() if count > 1}


def _inputs(experiment: Experiment, upstream: Collection[table.Task]) -> dict[str, Path]:
    found = states(experiment, upstream)
    return {str(node): _input(experiment.name, node, found[node]) for node in upstream}


def _input(experiment: str, task: table.Task, state: str) -> Path:
    """The folder of an input that is whole, and what the present parameters and sources make.

    Snakemake knows only of what it ran itself: an artifact from elsewhere, or a parameter that was
    changed while a run was under way, would otherwise end in results of mixed origin.
    """
    folder = manifests.checked_folder(experiment, task)
    if state != "current":
        again = f"snakemake --cores 1 --force {manifests.manifest_of(experiment, task)}"
        raise OcmError(f"{folder}: {state}; `{again}` makes it again")
    return folder


def _check_methods(experiment: Experiment, declared: Collection[str]) -> None:
    """Ask the methods that this stage uses about their options; the others stay unloaded."""
    if any(module.startswith("ocm_core.covariance.") for module in declared):
        from ocm_core.params.methods import check_methods

        check_methods(experiment.methods, resolved_file(experiment.name))


def _run_stage(job: Job, declared: Collection[str], before: Collection[str]) -> None:
    module = import_module(f"ocm_core.stages.{job.stage}")
    check_loaded(before, declared, job.stage)
    for output in job.outputs.values():
        output.parent.mkdir(parents=True, exist_ok=True)
    module.run(job)
    check_loaded(before, declared, job.stage)
    unwritten = [str(output) for output in job.outputs.values() if not output.is_file()]
    if unwritten:
        raise OcmError(f"stage {job.stage!r} has not written {', '.join(unwritten)}")
