"""Train the score network of an experiment that has no public checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ocm_core.diffusion.decoder import Decoder
from ocm_core.rng.streams import seed_torch
from ocm_core.stages._data import training_items
from ocm_core.stages._score import (
    SCORE_FILE,
    finish_training,
    new_denoiser,
    new_score,
    save_networks,
)
from ocm_core.stages._settings import given
from ocm_core.training.loop import fit
from ocm_core.training.score_matching import ScoreMatching

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    torch.set_num_threads(job.threads)
    experiment, settings = job.experiment, given(job.experiment.train.score)
    items = training_items(job)
    seed_torch(settings.seed, "score")
    network = new_score(experiment, job.part, items.variance).to(job.device)
    state = fit(
        ScoreMatching(
            new_denoiser(experiment, network), items.of(network), Decoder(experiment.levels)
        ),
        settings,
        job.folder,
        device=job.device,
        progress=lambda steps: job.progress(steps, "score network"),
    )
    finish_training(job, state)
    save_networks(job.folder / SCORE_FILE, {"": network})
    job.note(parameters=sum(p.numel() for p in network.parameters()))
