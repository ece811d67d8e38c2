"""Monte-Carlo moments of the noise prediction at every timestep."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ocm_core.stages._data import training_items
from ocm_core.stages._moments import MOMENTS_FILE, load_moments, save_moments
from ocm_core.stages._score import load_score
from ocm_core.training.moments import estimate

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    settings = job.experiment.train.moments
    denoiser = load_score(job, job.part)
    moments = estimate(
        denoiser,
        training_items(job).of(denoiser.network),
        settings,
        device=job.device,
        progress=lambda times: job.progress(times, "moments"),
        begun=load_moments(job.folder) if (job.folder / MOMENTS_FILE).exists() else None,
        keep=partial(save_moments, job.folder),
    )
    save_moments(job.folder, moments)
    job.note(draws_per_timestep=settings.draws)
