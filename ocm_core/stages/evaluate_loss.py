"""How well the score network itself denoises test images: the loss that it was trained by.

Each image is seen once, at a timestep of its own; they are spread evenly over the schedule.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import torch
import xarray as xr

from ocm_core.artifacts.encoded import open_split, read_rows
from ocm_core.artifacts.machine import machine_class
from ocm_core.artifacts.results import save
from ocm_core.artifacts.score import load_score
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import q_sample
from ocm_core.rng.noise import SampleNoise, Use
from ocm_core.schema.block import require
from ocm_core.shapes import Batch, PerSample

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.loss)
    stored = len(open_split(job, "test"))
    count = min(settings.images or stored, stored)
    batches = [
        range(first, min(first + settings.batch_size, count))
        for first in range(0, count, settings.batch_size)
    ]
    means, errors = [], []
    for score in experiment.network.scores:
        denoiser = load_score(job, score)
        seen = job.progress(batches, f"loss of the {score} score")
        losses = torch.cat([_losses(job, denoiser, rows, count) for rows in seen]).double()
        means.append(float(losses.mean()))
        errors.append(float(losses.std()) / sqrt(count))
    found = {"loss": ("score", means), "loss_se": ("score", errors)}
    save(job.folder, xr.Dataset(found, {"score": list(experiment.network.scores)}))
    job.note(images=count, machine=machine_class(job))


@torch.no_grad()
def _losses(job: Job, denoiser: Denoiser, rows: range, count: int) -> PerSample:
    """(ε - ε̂)², averaged over the values of each image."""
    schedule = denoiser.schedule
    x0, label = read_rows(job, "test", rows, denoiser.network.conditional)
    times = [1 + (2 * row + 1) * schedule.steps // (2 * count) for row in rows]
    eps = torch.cat([_noise(job, row, t) for row, t in zip(rows, times, strict=True)])
    t = torch.tensor(times, device=job.device)
    x = q_sample(x0, eps, *schedule.marginal_at(t, x0))
    return (eps - denoiser.predict(x, t, label).eps).square().flatten(1).mean(1).cpu()


def _noise(job: Job, row: int, t: int) -> Batch:
    """As the bound draws it for this image and timestep."""
    seed, shape = require(job.experiment.evaluate.loss).seed, job.experiment.shape
    return SampleNoise(seed, [row], shape, job.device, Use.LIKELIHOOD, t).normal()
