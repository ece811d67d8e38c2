"""Samples of an experiment, from its artifacts, as the stage `sample` draws them.

Any number of steps and any seed will do; where the experiment has them, these are its own samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ocm_core.cells import cells
from ocm_core.covariance.interface import check_defined
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.execution import executed
from ocm_core.errors import OcmError, unknown
from ocm_core.generate.request import Source, Wish, decoded_as_it_is
from ocm_core.params.document import validate
from ocm_core.params.resolved import load
from ocm_core.pipeline import table
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.manifests import checked_folder, manifest_of, read_manifest
from ocm_core.pipeline.staleness import state
from ocm_core.samplers.ancestral import Watcher
from ocm_core.schema.experiment import Experiment
from ocm_core.stages._cells import CellSampler
from ocm_core.stages._heads import load_denoiser
from ocm_core.stages._images import ToImages
from ocm_core.stages.sample import run_name
from ocm_core.store.writer import Values


def from_experiment(name: str, wish: Wish) -> Source:
    whole = load(name)
    one = _with_one_cell(whole, wish)
    (cell,) = cells(one)
    needed = _needed(one)
    job = Job(
        experiment=one,
        stage="sample",
        part="all",
        inputs=_current(whole, needed),
        folder=Path(),
        requested_device=wish.device,
        threads=wish.threads,
    )
    denoiser = executed(
        load_denoiser(job, cell.score, [cell.method]), **one.sample.execution.model_dump()
    )
    chosen = CellSampler(one, denoiser, cell, job.device)
    check_defined(chosen.method, chosen.kernel)
    _check_label(one, denoiser, wish.label)
    return Source(
        name=f"{name}-{run_name(cell)}-seed{cell.seed}" + _suffix(wish),
        shape=one.shape,
        image_shape=None if one.data.levels is None else one.data.shape,
        levels=one.data.levels or 0,
        to_images=_decoder(job),
        labelled=denoiser.network.conditional,
        steps=cell.steps,
        batch_size=one.sample.batch_size,
        draw=_Draw(chosen, wish.label),
        attributes={
            "experiment": name,
            **{key: getattr(cell, key) for key in ("score", "method", "steps", "guidance", "seed")},
            "sampler": {"name": cell.sampler, **chosen.sampler.model_dump(include=_OF_SAMPLER)},
            "label": wish.label,
            "digests": _digests(name, needed),
        },
    )


_OF_SAMPLER = {"kind", "eta", "rederive_eps", "chain", "last_sigma"}


@dataclass(frozen=True)
class _Draw:
    cell: CellSampler
    label: int | None

    def __call__(self, rows: range, watch: Watcher) -> Values:
        labels = self.cell.labels(rows)
        if labels is not None and self.label is not None:
            labels = torch.full_like(labels, self.label)
        drawn = self.cell.draw(rows, labels, watch)
        values = {"x": drawn.x.cpu().numpy()}
        return values if labels is None else {**values, "label": labels.cpu().numpy()}


def _with_one_cell(experiment: Experiment, wish: Wish) -> Experiment:
    """The experiment as it would be if this were all that it sampled; so its rules hold here."""
    samplers, scores = experiment.sample.samplers, experiment.network.scores
    if wish.method not in experiment.methods:
        raise OcmError(f"--method of {experiment.name}: {unknown(wish.method, experiment.methods)}")
    own = (label for label, sampler in samplers.items() if wish.method in sampler.methods)
    sampler = wish.sampler or next(own, next(iter(samplers)))
    if sampler not in samplers:
        raise OcmError(f"--sampler of {experiment.name}: {unknown(sampler, samplers)}")
    score = wish.score or ("learned" if "learned" in scores else scores[0])
    if score not in scores:
        raise OcmError(f"--score of {experiment.name}: {unknown(score, scores)}")
    tree: dict[str, Any] = experiment.model_dump()
    tree["network"]["scores"] = [score]
    chosen = tree["sample"]["samplers"][sampler] | {
        "methods": [wish.method],
        "grids": [{"steps": [wish.steps], "guidance": [wish.guidance]}],
    }
    tree["sample"] |= {"samplers": {sampler: chosen}, "seeds": [wish.seed], "split": []}
    return validate(tree, Path(f"ocm sample {experiment.name}"))


def _needed(one: Experiment) -> list[table.Task]:
    decoder = [task for task in table.tasks(one) if str(task) in table.VAE]
    return [*table.inputs(one, table.Task("sample", "all")), *decoder]


def _current(experiment: Experiment, needed: list[table.Task]) -> dict[str, Path]:
    """The folders of what is needed, or how to make all that is missing or stale at once."""
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


def _decoder(job: Job) -> ToImages:
    if not job.experiment.encode.latent:
        return decoded_as_it_is
    from ocm_core.stages._latents import decoder  # imports diffusers, which takes its time

    return decoder(job)


def _suffix(wish: Wish) -> str:
    return "" if wish.label is None else f"-label{wish.label}"


def _digests(name: str, needed: list[table.Task]) -> dict[str, str]:
    """sha256 of the networks and tables: checkpoint, heads, moments, autoencoder."""
    return {
        f"{task}/{file}": entry["sha256"]
        for task in needed
        for file, entry in read_manifest(name, task)["files"].items()
        if file.endswith((".safetensors", ".npz"))
    }
