"""Train the score network of an experiment that has no public checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ocm_core.artifacts.score import SCORE_FILE, new_denoiser, new_score
from ocm_core.artifacts.trained import finish_training, save_networks
from ocm_core.artifacts.training_set import open_training_set
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.precision import set_precision
from ocm_core.rng.streams import seed_torch
from ocm_core.schema.block import require
from ocm_core.training.loop import fit
from ocm_core.training.score_matching import ScoreMatching

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.train.score)
    items = open_training_set(job, settings.batch_size)
    precision = set_precision(settings.precision)
    seed_torch(settings.seed, "score")
    network = new_score(experiment, job.part, items.variance).to(job.device)
    state = fit(
        ScoreMatching(
            replace(new_denoiser(experiment, network), precision=precision),
            items.for_network(network),
            Decoder(experiment.levels),
        ),
        settings,
        job.state,
        device=job.device,
        progress=lambda steps: job.progress(steps, "score network"),
    )
    finish_training(job.folder, state)
    save_networks(job.folder / SCORE_FILE, {"": network})
    job.note(parameters=sum(p.numel() for p in network.parameters()))
