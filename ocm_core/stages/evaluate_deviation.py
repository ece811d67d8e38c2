"""What the heads predict, as pictures: √diag Cov[x_0 | x_t], beside estimates from M probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from numpy import ndarray

from ocm_core.artifacts.encoded import read_rows, unseen_split
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.results import save
from ocm_core.covariance import build_all
from ocm_core.covariance.interface import PosteriorMethod
from ocm_core.covariance.rademacher import probed
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import posterior_scale, q_sample
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.deviation)
    methods = {
        label: method
        for label, method in build_all(experiment.methods).items()
        if isinstance(method, PosteriorMethod)
    }
    split, found = unseen_split(job), []
    for score in experiment.network.scores:
        denoiser = load_denoiser(job, score, methods)
        times = job.progress(settings.times, f"deviations, {score} score")
        found.append(np.stack([_at(job, split, denoiser, methods, t) for t in times]))
    axes = [f"axis{i}" for i in range(len(experiment.shape))]
    dims = ["score", "t", "source", "image", *axes]
    sources = ["x_t", *methods, *(f"probes_{count}" for count in settings.probes)]
    save(
        job.folder,
        xr.Dataset(
            {"deviation": (dims, np.stack(found), {"split": split})},
            {"score": list(experiment.network.scores), "t": settings.times, "source": sources},
        ),
    )


def _at(
    job: Job, split: str, denoiser: Denoiser, methods: Mapping[str, PosteriorMethod], t: int
) -> ndarray:
    """x_t, then √C of every method, then √C from every number of probes; negative C shown as 0."""
    settings = require(job.experiment.evaluate.deviation)
    rows = range(settings.images)
    x0, label = read_rows(job, split, rows, denoiser.network.conditional)
    noise = SampleNoise(settings.seed, rows, job.experiment.shape, job.device, Use.DEVIATION, t)
    x = q_sample(x0, noise.normal(), *denoiser.schedule.marginal(t))
    with torch.no_grad():
        seen = denoiser.predict(x, t, label)
        c = [method.c(seen) for method in methods.values()]
        c += [probed(seen, noise, count) for count in settings.probes]
    scale = posterior_scale(*denoiser.schedule.marginal(t))
    deviations = [(scale * value).clamp(min=0).sqrt() for value in c]
    return np.asarray(torch.stack([x, *deviations]).cpu().numpy())
