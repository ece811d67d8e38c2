"""Train the autoencoder of an experiment that has no published one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.artifacts.dataset import open_data
from ocm_core.artifacts.trained import finish_training
from ocm_core.latents.autoencoder import new_autoencoder
from ocm_core.latents.training import VaeFitting, measured_scaling
from ocm_core.latents.vae import save_folder
from ocm_core.rng.streams import seed_torch
from ocm_core.schema.block import require
from ocm_core.training.batches import InMemory
from ocm_core.training.loop import fit

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    vae = require(job.experiment.encode.latent).vae
    settings = require(job.experiment.train.vae)
    images = _training_images(job)
    seed_torch(settings.seed, "vae")
    model = new_autoencoder(vae.config, "encode.latent.vae.config")
    model.to(job.device)  # type: ignore[arg-type]  # diffusers' wrapper hides the signature
    state = fit(
        VaeFitting(model, InMemory(images), require(vae.kl_weight)),
        settings,
        job.state,
        device=job.device,
        progress=lambda steps: job.progress(steps, "autoencoder"),
    )
    finish_training(job.folder, state)
    scaling = measured_scaling(model, images, settings.batch_size)
    save_folder(model, job.folder, scaling)
    job.note(parameters=sum(p.numel() for p in model.parameters()), scaling_factor=scaling)


def _training_images(job: Job) -> Tensor:
    """In [-1, 1]."""
    data = open_data(job)
    split = data.splits["train"]
    values = torch.from_numpy(split.read(range(len(split)))).float()
    return 2 * values / (require(data.levels) - 1) - 1
