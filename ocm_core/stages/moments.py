"""Monte-Carlo moments of the noise prediction at every timestep."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ocm_core.artifacts.moments import MOMENTS_FILE, load_moments, save_moments
from ocm_core.artifacts.score import load_score
from ocm_core.artifacts.training_set import open_training_set
from ocm_core.training.moments import estimate

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    settings = job.experiment.train.moments
    denoiser = load_score(job, job.part)
    moments = estimate(
        denoiser,
        open_training_set(job).for_network(denoiser.network),
        settings,
        device=job.device,
        progress=lambda times: job.progress(times, "moments"),
        begun=load_moments(job.folder) if (job.folder / MOMENTS_FILE).exists() else None,
        keep=partial(save_moments, job.folder),
    )
    save_moments(job.folder, moments)
    job.note(draws_per_timestep=settings.draws)
