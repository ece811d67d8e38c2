"""Samples by the networks of an experiment, as the stage `sample` generates them.

Any number of steps and any seed can be chosen; for those of the experiment itself, the samples are
the same as its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.images import Decode
from ocm_core.artifacts.samples import store_name
from ocm_core.cells import cells
from ocm_core.covariance.interface import check_defined
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.execution import executed
from ocm_core.errors import OcmError, unknown
from ocm_core.generate.request import SampleGenerator, SampleRequest, identity
from ocm_core.params.document import validate
from ocm_core.params.resolved import load
from ocm_core.pipeline import table
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.manifests import checked_folder, manifest_of, read_manifest
from ocm_core.pipeline.staleness import state
from ocm_core.samplers.ancestral import Watcher
from ocm_core.samplers.cell_sampler import CellSampler
from ocm_core.schema.experiment import Experiment
from ocm_core.store.writer import ShardValues


def from_experiment(name: str, request: SampleRequest) -> SampleGenerator:
    """By the artifacts of the experiment of that name, which must be current."""
    whole = load(name)
    one = _with_one_cell(whole, request)
    (cell,) = cells(one)
    needed = _needed(one)
    job = Job(
        experiment=one,
        stage="sample",
        part="all",
        inputs=_current(whole, needed),
        folder=Path(),
        requested_device=request.device,
        threads=request.threads,
    )
    denoiser = executed(
        load_denoiser(job, cell.score, [cell.method]), **one.sample.execution.model_dump()
    )
    chosen = CellSampler(one, denoiser, cell, job.device)
    check_defined(chosen.method, chosen.kernel)
    _check_label(one, denoiser, request.label)
    return SampleGenerator(
        name=f"{name}-{store_name(cell)}{request.suffix}",
        shape=one.shape,
        image_shape=None if one.data.levels is None else one.data.shape,
        levels=one.data.levels or 0,
        to_images=_decoder(job),
        labelled=denoiser.network.conditional,
        steps=cell.steps,
        batch_size=one.sample.batch_size,
        draw=_Draw(chosen, request.label),
        attributes={
            "experiment": name,
            **{key: getattr(cell, key) for key in ("score", "method", "steps", "guidance", "seed")},
            "sampler": {"name": cell.sampler, **chosen.sampler.model_dump(include=_OF_SAMPLER)},
            "label": request.label,
            "digests": _digests(name, needed),
        },
    )


_OF_SAMPLER = {"kind", "eta", "rederive_eps", "chain", "last_sigma"}


@dataclass(frozen=True)
class _Draw:
    cell: CellSampler
    label: int | None

    def __call__(self, rows: range, watch: Watcher) -> ShardValues:
        labels = self.cell.labels(rows)
        if labels is not None and self.label is not None:
            labels = torch.full_like(labels, self.label)
        drawn = self.cell.draw(rows, labels, watch)
        values = {"x": drawn.x.cpu().numpy()}
        return values if labels is None else {**values, "label": labels.cpu().numpy()}


def _with_one_cell(experiment: Experiment, request: SampleRequest) -> Experiment:
    """The experiment with this request as all that it samples, checked by the usual rules."""
    samplers, scores = experiment.sample.samplers, experiment.network.scores
    if request.method not in experiment.methods:
        raise OcmError(
            f"--method of {experiment.name}: {unknown(request.method, experiment.methods)}"
        )
    own = (label for label, sampler in samplers.items() if request.method in sampler.methods)
    sampler = request.sampler or next(own, next(iter(samplers)))
    if sampler not in samplers:
        raise OcmError(f"--sampler of {experiment.name}: {unknown(sampler, samplers)}")
    score = request.score or ("learned" if "learned" in scores else scores[0])
    if score not in scores:
        raise OcmError(f"--score of {experiment.name}: {unknown(score, scores)}")
    tree: dict[str, Any] = experiment.model_dump()
    tree["network"]["scores"] = [score]
    chosen = tree["sample"]["samplers"][sampler] | {
        "methods": [request.method],
        "grids": [{"steps": [request.steps], "guidance": [request.guidance]}],
    }
    tree["sample"] |= {"samplers": {sampler: chosen}, "seeds": [request.seed], "split": []}
    return validate(tree, Path(f"ocm sample {experiment.name}"))


def _needed(one: Experiment) -> list[table.Task]:
    decoder = [task for task in table.tasks(one) if str(task) in table.VAE]
    return [*table.inputs(one, table.Task("sample", "all")), *decoder]


def _current(experiment: Experiment, needed: list[table.Task]) -> dict[str, Path]:
    """The folders of the needed artifacts; if any is not current, how to make all of them."""
    found = {task: state(experiment, task) for task in needed}
    old = {task: how for task, how in found.items() if how != "current"}
    if old:
        lines = [f"artifacts/{experiment.name}/{task}: {how}" for task, how in old.items()]
        manifests = " ".join(str(manifest_of(experiment.name, task)) for task in old)
        stale = "" if set(old.values()) == {"missing"} else "--force "
        lines.append(f"`snakemake --cores all {stale}{manifests}` makes what is needed")
        raise OcmError("\n".join(lines))
    return {str(task): checked_folder(experiment.name, task) for task in needed}


def _check_label(experiment: Experiment, denoiser: Denoiser, label: int | None) -> None:
    if label is None:
        return
    if not denoiser.network.conditional:
        raise OcmError(f"--label {label}: the network of {experiment.name} takes no classes")
    if label >= experiment.data.classes:
        raise OcmError(f"--label {label}: expected 0 to {experiment.data.classes - 1}")


def _decoder(job: Job) -> Decode:
    if not job.experiment.encode.latent:
        return identity
    from ocm_core.artifacts.autoencoder import decoder  # imports diffusers, which takes its time

    return decoder(job)


def _digests(name: str, needed: list[table.Task]) -> dict[str, str]:
    """sha256 of checkpoint, heads, moments and autoencoder."""
    return {
        f"{task}/{file}": entry["sha256"]
        for task in needed
        for file, entry in read_manifest(name, task)["files"].items()
        if file.endswith((".safetensors", ".npz"))
    }
