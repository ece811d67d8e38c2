"""Monte-Carlo moments of the noise prediction, over all timesteps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.stages._data import training_items
from ocm_core.stages._moments import MOMENTS_FILE, load_moments, save_moments
from ocm_core.stages._score import load_score
from ocm_core.training.draws import Draws
from ocm_core.training.moments import Moments, estimate_at, timesteps

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

_SAVE_EVERY = 100


def run(job: Job) -> None:
    settings = job.experiment.train.moments
    denoiser = load_score(job, job.part)
    items = training_items(job).of(denoiser.network)
    resumed = (job.folder / MOMENTS_FILE).exists()
    moments = load_moments(job.folder) if resumed else Moments.empty(denoiser.schedule.steps)
    times = timesteps(denoiser.schedule.steps, settings.stride)
    for done, t in enumerate(job.progress(moments.missing(times), "moments"), start=1):
        draws = Draws(settings.seed, t, settings.draws, job.device)  # the timestep's own stream
        x0, label = items.batch(draws)
        eps = draws.normals(job.experiment.shape)
        estimate_at(denoiser, moments, t, x0, eps, label, settings.batch_size)
        if done % _SAVE_EVERY == 0:
            save_moments(job.folder, moments)
    save_moments(job.folder, moments.interpolated())
    job.note(timesteps=len(times), draws_per_timestep=settings.draws)
