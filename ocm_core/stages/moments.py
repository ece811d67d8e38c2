"""Monte-Carlo moments of the noise prediction at every timestep, which processes share."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ocm_core.artifacts.moments import load_begun, save_begun, save_moments
from ocm_core.artifacts.score import load_score
from ocm_core.artifacts.training_set import open_training_set
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.training.moments import Moments, estimate

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    settings = job.experiment.train.moments
    rank, denoiser = current_rank(), load_score(job, job.part)
    begun = partial(load_begun, job.state, denoiser.schedule.steps)
    keep = partial(save_begun, job.state, rank.index)
    mine = estimate(
        denoiser,
        open_training_set(job).for_network(denoiser.network),
        settings,
        device=job.device,
        progress=lambda times: job.progress(times, "moments"),
        begun=rank.agreed(begun),
        keep=keep,
        rank=rank,
    )
    keep(mine)
    rank.wait()
    if rank.is_first:
        save_moments(job.folder, _whole(begun(), job.state))
    job.note(draws_per_timestep=settings.draws)


def _whole(moments: Moments, folder: Path) -> Moments:
    if moments.missing:
        raise OcmError(f"{folder}: lost while others were computed; run it again")
    return moments
