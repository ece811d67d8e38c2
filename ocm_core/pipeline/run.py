"""Run one stage: check what goes in, hand the stage its job, record what came out."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import torch

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.params.resolved import load, resolved_file
from ocm_core.params.restrict import restrict
from ocm_core.pipeline import manifests, table
from ocm_core.pipeline.job import Device, Job
from ocm_core.pipeline.sources import check_loaded, loaded
from ocm_core.pipeline.staleness import fingerprint, state
from ocm_core.schema.experiment import Experiment


def run(name: str, stage: str, part: str, device: Device, threads: int) -> None:
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
    with manifests.sole_writer(name, task) if rank.is_first else nullcontext():
        job = Job(
            experiment=restricted,
            stage=stage,
            part=part,
            inputs={str(t): _input(experiment, t) for t in table.inputs(experiment, task)},
            folder=manifests.folder_of(name, task),
            outputs={k: Path(path) for k, path in table.outputs(experiment, task).items()},
            requested_device=device,
            threads=threads,
        )
        facts = fingerprint(experiment, task)
        key = manifests.text_digest(facts)
        if rank.is_first:
            manifests.prepare(job.folder, key)
        rank.wait()
        _run_stage(job, declared, before)
        rank.wait()
        if rank.is_first:
            facts |= {"key": key, "notes": job.notes}
            manifests.finish(name, task, job.outputs.values(), facts)


def _input(experiment: Experiment, task: table.Task) -> Path:
    """The folder of an input that is whole, and what the present parameters and sources make.

    Snakemake knows only of what it ran itself: an artifact from elsewhere, or a parameter that was
    changed while a run was under way, would otherwise end in results of mixed origin.
    """
    folder = manifests.checked_folder(experiment.name, task)
    if (found := state(experiment, task)) != "current":
        again = f"snakemake --cores 1 --force {manifests.manifest_of(experiment.name, task)}"
        raise OcmError(f"{folder}: {found}; `{again}` makes it again")
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
