"""Samples by the networks of an experiment, as the stage `sample` generates them.

Any number of steps and any seed can be chosen; for those of the experiment itself, the samples are
the same as its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ocm_core.artifacts.chains import optimal_chains
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.images import Decode
from ocm_core.artifacts.prompts import open_encoder
from ocm_core.artifacts.samples import store_name
from ocm_core.artifacts.score import text_of
from ocm_core.cells import cells
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.execution import executed
from ocm_core.errors import OcmError, unknown
from ocm_core.generate.request import SampleGenerator, SampleRequest, identity
from ocm_core.networks.converted import unconverted
from ocm_core.networks.prompts import Prompts
from ocm_core.params.document import validate
from ocm_core.params.resolved import load
from ocm_core.pipeline import table
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.locks import reading
from ocm_core.pipeline.manifests import checked_folder, folder_of, manifest_of, read_manifest
from ocm_core.pipeline.staleness import states
from ocm_core.samplers.ancestral import Watcher
from ocm_core.samplers.cell_sampler import CellSampler
from ocm_core.samplers.presets import PRESETS, altered, preset_named
from ocm_core.schema.experiment import Experiment, PresetParams, Sampler, WalkParams
from ocm_core.store.writer import ShardValues


def from_experiment(name: str, request: SampleRequest) -> SampleGenerator:
    """By the artifacts of the experiment of that name, which must be current."""
    with prepared(name, request) as job:
        return _generator(name, job, request)


def _generator(name: str, job: Job, request: SampleRequest) -> SampleGenerator:
    one = job.experiment
    (cell,) = cells(one)
    denoiser = executed(
        load_denoiser(job, cell.score, [cell.method]), **one.sample.execution.model_dump()
    )
    if request.prompt is not None:
        request = replace(request, label=_prompted(job, denoiser, request))
    chosen = CellSampler(one, denoiser, cell, job.device, optimal_chains(job, cell.score))
    chosen.check()
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
            "sampler": {
                "name": cell.sampler,
                **chosen.sampler.model_dump(exclude={"grids", "methods"}),
            },
            "label": request.label,
            "prompt": request.prompt,
            "digests": _digests(name, _needed(one)),
        },
    )


@contextmanager
def prepared(name: str, request: SampleRequest) -> Iterator[Job]:
    """The experiment with the request as its only cell, and the artifacts that this needs.

    They stay as they are until the block ends: a run that has made others waits for that.
    """
    whole = load(name)
    one = _with_one_cell(whole, request)
    needed = _needed(one)
    with ExitStack() as held:
        for folder in (folder_of(name, task) for task in table.ancestry(whole, needed)):
            if folder.exists():
                held.enter_context(reading(folder))
        yield Job(
            experiment=one,
            stage="sample",
            part="all",
            inputs=_current(whole, needed),
            folder=Path(),
            state=Path(),
            requested_device=request.device,
            threads=request.threads,
        )


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
    scores = experiment.network.scores
    score = request.score or ("learned" if "learned" in scores else scores[0])
    if score not in scores:
        raise OcmError(f"--score of {experiment.name}: {unknown(score, scores)}")
    label, sampler = _by_preset(experiment, request) or _by_label(experiment, request)
    if isinstance(sampler, PresetParams):
        sampler = PRESETS[sampler.name].walk(request.steps)
    if isinstance(sampler, WalkParams):
        sampler = altered(sampler, order=request.order, chain=request.chain)
    elif request.order or request.chain:
        raise OcmError(f"--order and --chain: {label} is a solver of diffusers and has its own")
    tree: dict[str, Any] = experiment.model_dump()
    tree["network"]["scores"] = [score]
    chosen = sampler.model_dump() | {
        "methods": [_method(experiment, request, sampler)],
        "grids": [{"steps": [request.steps], "guidance": [request.guidance]}],
    }
    tree["sample"] |= {"samplers": {label: chosen}, "seeds": [request.seed], "split": []}
    return validate(tree, Path(f"ocm sample {experiment.name}"))


def _by_preset(experiment: Experiment, request: SampleRequest) -> tuple[str, WalkParams] | None:
    if request.preset is None:
        return None
    if request.sampler is not None:
        raise OcmError("--sampler and --preset each say how to sample; give one of them")
    return request.preset, preset_named(request.preset).walk(request.steps)


def _by_label(experiment: Experiment, request: SampleRequest) -> tuple[str, Sampler]:
    samplers = experiment.sample.samplers
    own = (label for label, sampler in samplers.items() if request.method in sampler.methods)
    label = request.sampler or next(own, next(iter(samplers)))
    if label not in samplers:
        raise OcmError(f"--sampler of {experiment.name}: {unknown(label, samplers)}")
    return label, samplers[label]


def _method(experiment: Experiment, request: SampleRequest, sampler: WalkParams | Sampler) -> str:
    """Asked for, or of the kind that the preset is meant for: under its own name, if it has one."""
    methods, wanted = experiment.methods, request.method
    if wanted is None and sampler.kind == "diffusers":
        return "none"
    if wanted is None:
        if request.preset is None:
            raise OcmError("--method: expected a covariance method, or a --preset, which has one")
        kind = preset_named(request.preset).method
        alike = [label for label, method in methods.items() if method.kind == kind]
        wanted = kind if kind in methods or not alike else alike[0]
    if wanted not in methods:
        raise OcmError(f"--method of {experiment.name}: {unknown(wanted, methods)}")
    return wanted


def _needed(one: Experiment) -> list[table.Task]:
    decoder = [task for task in table.tasks(one) if str(task) in table.VAE]
    return [*table.inputs(one, table.Task("sample", "all")), *decoder]


def _current(experiment: Experiment, needed: list[table.Task]) -> dict[str, Path]:
    """The folders of the needed artifacts; if any is not current, how to make all of them."""
    found = states(experiment, needed)
    old = {task: found[task] for task in needed if found[task] != "current"}
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


def _prompted(job: Job, denoiser: Denoiser, request: SampleRequest) -> int:
    """The label of the prompt, which takes the place of the experiment's captions."""
    text = text_of(job.experiment)
    if text is None or request.prompt is None:
        raise OcmError(f"--prompt: the network of {job.experiment.name} takes no text")
    if request.label is not None:
        raise OcmError("--label and --prompt: a label is the number of a caption; give one of them")
    network = unconverted(denoiser.network)
    embeddings = open_encoder(text, job.device)([request.prompt, ""])
    network.prompts = Prompts(embeddings)
    network.null_label = denoiser.network.null_label = 1
    return 0


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
