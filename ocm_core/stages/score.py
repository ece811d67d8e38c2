"""Train the score network of an experiment that has no public checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.stages._data import read_items
from ocm_core.stages._score import (
    SCORE_FILE,
    finish_training,
    label_seed,
    new_score,
    save_networks,
    schedule_of,
)
from ocm_core.training.batches import Items
from ocm_core.training.loop import fit
from ocm_core.training.score_matching import ScoreMatching

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    torch.set_num_threads(job.threads)
    settings = job.experiment.train.score
    x0 = read_items(job, "train")
    torch.manual_seed(label_seed(settings.seed, "score"))
    network = new_score(job.experiment, job.part, float(x0.var(0).mean())).to(job.device)
    objective = ScoreMatching(Denoiser(network, schedule_of(job.experiment)), Items(x0))
    state = fit(
        objective,
        settings,
        job.folder,
        device=job.device,
        progress=lambda steps: job.progress(steps, "score network"),
    )
    finish_training(job, state)
    save_networks(job.folder / SCORE_FILE, {"": network})
    job.note(parameters=sum(p.numel() for p in network.parameters()))
