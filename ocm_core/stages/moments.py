"""Monte-Carlo moments of the noise prediction at every timestep."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.stages._data import read_items
from ocm_core.stages._moments import MOMENTS_FILE, load_moments, save_moments
from ocm_core.stages._score import load_score
from ocm_core.training.draws import Draws
from ocm_core.training.moments import Moments, estimate_at

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

_SAVE_EVERY = 100


def run(job: Job) -> None:
    settings = job.experiment.train.moments
    denoiser = load_score(job, job.part)
    draw = partial(_draw, read_items(job, "train"), settings.seed, settings.draws, job.device)
    resumed = (job.folder / MOMENTS_FILE).exists()
    moments = load_moments(job.folder) if resumed else Moments.empty(denoiser.schedule.steps)
    for t in job.progress(moments.missing, "moments"):
        estimate_at(denoiser, moments, t, *draw(t))
        if t % _SAVE_EVERY == 0:
            save_moments(job.folder, moments)
    save_moments(job.folder, moments)
    job.note(draws_per_timestep=settings.draws)


def _draw(items: Tensor, seed: int, count: int, device: str, t: int) -> tuple[Tensor, Tensor]:
    """Items in shuffled order and fresh noise, from the timestep's own stream."""
    draws = Draws(seed, t, count, device)
    rows = torch.from_numpy(draws.items(len(items)))
    return items[rows].to(device), draws.normals(tuple(items.shape[1:]))
