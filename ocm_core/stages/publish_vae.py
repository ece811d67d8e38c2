"""Write a small autoencoder with random weights in the published folder format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.latents.autoencoder import new_autoencoder
from ocm_core.latents.vae import save_folder
from ocm_core.rng.streams import seed_torch
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

SEED = 0


def run(job: Job) -> None:
    config = require(job.experiment.encode.latent).vae.config
    seed_torch(SEED)
    model = new_autoencoder(config, "encode.latent.vae.config")
    save_folder(model, job.folder, config["scaling_factor"])
