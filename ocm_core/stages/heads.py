"""Train the covariance heads on the frozen score network, all in one pass of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ocm_core import covariance
from ocm_core.artifacts.heads import HEADS_FILE, load_denoiser, new_head
from ocm_core.artifacts.trained import finish_training, save_networks
from ocm_core.artifacts.training_set import open_training_set
from ocm_core.covariance.learned import LearnedMethod
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.errors import OcmError
from ocm_core.networks.recomputing import recompute_blocks
from ocm_core.rng.streams import seed_torch
from ocm_core.training.baselines import gaussian_baseline, or_gaussian, target_means
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.loop import fit

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def run(job: Job) -> None:
    experiment, settings = job.experiment, job.experiment.train.heads
    items = open_training_set(job)
    denoiser = load_denoiser(job, job.part)
    denoiser.network.train(settings.trunk_dropout)
    if settings.recompute:
        recompute_blocks(denoiser.network)
    methods = {
        label: cast(LearnedMethod, covariance.build(method.kind, label, **method.options))
        for label, method in experiment.methods.items()
    }
    bare = HeadFitting(
        replace(denoiser, precision=_PRECISIONS[settings.precision]),
        methods,
        items.for_network(denoiser.network),
        Decoder(experiment.levels),
    )
    heads = {}
    for label, baseline in _baselines(job, bare, items.variance).items():
        seed_torch(settings.seed, experiment.methods[label].init or label)
        heads[label] = new_head(experiment, label, denoiser.network, baseline).to(job.device)
    state = fit(
        replace(bare, denoiser=replace(bare.denoiser, heads=heads)),
        settings,
        job.folder,
        device=job.device,
        progress=lambda steps: job.progress(steps, f"heads on the {job.part} score"),
    )
    finish_training(job.folder, state)
    save_networks(job.folder / HEADS_FILE, heads)
    counts = {label: sum(p.numel() for p in head.parameters()) for label, head in heads.items()}
    job.note(parameters=counts)


def _baselines(job: Job, fitting: HeadFitting, variance: float) -> dict[str, Tensor | None]:
    """c̄_t by method, as its form says; None where there is none."""
    experiment, settings = job.experiment, job.experiment.train.heads
    kinds = {label: experiment.head.form(m).baseline for label, m in experiment.methods.items()}
    by_target, by_moments, by_gaussian = (
        {label: fitting.methods[label] for label in kinds if kinds[label] == kind}
        for kind in ("target", "moments", "gaussian")
    )
    micro_batch = settings.batch_size // settings.accumulate
    estimates = target_means(
        replace(fitting, methods=by_target), settings.seed, micro_batch, job.device
    )
    moments, schedule = fitting.denoiser.moments, fitting.denoiser.schedule
    if by_moments and moments is None:
        raise OcmError("head.baseline: 'moments' needs the stage `moments`, and it is no input")
    if moments is not None:
        estimates |= dict.fromkeys(by_moments, moments)
    replaced = [int((table[1:] <= 0).sum()) for table in estimates.values()]
    job.note(baseline_entries_from_gaussian=max(replaced, default=0))
    gaussian = gaussian_baseline(schedule, variance)
    return {
        **dict.fromkeys(kinds),
        **dict.fromkeys(by_gaussian, gaussian),
        **{label: or_gaussian(table, gaussian) for label, table in estimates.items()},
    }
