"""Train the covariance heads on the frozen score network, all in one pass of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.covariance._head import LearnedMethod
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.errors import OcmError
from ocm_core.likelihood.decoder import Decoder
from ocm_core.networks.recomputing import recompute_blocks
from ocm_core.stages._data import training_items
from ocm_core.stages._heads import HEADS_FILE, load_denoiser, new_head
from ocm_core.stages._score import finish_training, label_seed, save_networks
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit
from ocm_core.training.moments import baseline_gaussian, baseline_moments

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def run(job: Job) -> None:
    experiment, settings = job.experiment, job.experiment.train.heads
    items = training_items(job)
    denoiser = load_denoiser(job, job.part)
    denoiser.network.train(settings.trunk_dropout)
    if settings.recompute:
        recompute_blocks(denoiser.network)
    heads = {}
    for label, method in experiment.methods.items():
        torch.manual_seed(label_seed(settings.seed, label))
        kind = experiment.head.form(method).baseline
        baseline = _baseline(job, denoiser, items.variance, kind)
        heads[label] = new_head(experiment, label, denoiser.network, baseline).to(job.device)
    methods = {
        label: cast(LearnedMethod, covariance.build(method.kind, label, **method.options))
        for label, method in experiment.methods.items()
    }
    denoiser = replace(denoiser, heads=heads, precision=_PRECISIONS[settings.precision])
    state = fit(
        HeadFitting(denoiser, methods, items.of(denoiser.network), Decoder(experiment.levels)),
        settings,
        job.folder,
        device=job.device,
        progress=lambda steps: job.progress(steps, f"heads on the {job.part} score"),
    )
    finish_training(job, state)
    save_networks(job.folder / HEADS_FILE, heads)
    counts = {label: sum(p.numel() for p in head.parameters()) for label, head in heads.items()}
    job.note(parameters=counts)


def _baseline(job: Job, denoiser: Denoiser, variance: float, kind: str) -> Tensor | None:
    """c̄_t, to which heads are relative: that of a Gaussian, or the moments', or none."""
    if kind == "none":
        return None
    schedule = denoiser.schedule
    gaussian = torch.from_numpy(baseline_gaussian(schedule.alpha_bar, schedule.b, variance))
    if kind == "gaussian":
        return gaussian
    if denoiser.moments is None:
        raise OcmError("head.baseline: 'moments' needs the stage `moments`, and it is no input")
    job.note(baseline_entries_from_gaussian=int((denoiser.moments[1:] <= 0).sum()))
    return baseline_moments(denoiser.moments, gaussian)
