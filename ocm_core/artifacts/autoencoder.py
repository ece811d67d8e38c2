"""The autoencoder of an experiment: images to latents for the store, samples back to images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.datasets.interface import DataSet
from ocm_core.latents.encoding import LatentEncoding
from ocm_core.latents.vae import Vae
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def load_vae(job: Job) -> Vae:
    folder = job.inputs.get("vae/all") or job.inputs["fetch_vae/all"]
    return Vae.load(folder, job.device)


def encoding(job: Job, data: DataSet) -> LatentEncoding:
    settings = require(job.experiment.encode.latent)
    return LatentEncoding(
        vae=load_vae(job),
        image_levels=require(data.levels),
        posterior=settings.posterior,
        seed=settings.seed,
        batch_size=settings.batch_size,
        provenance=data.provenance,
    )


def decoder(job: Job) -> Callable[[Tensor], Tensor]:
    """Latents to images in [-1, 1], batch by batch."""
    vae, size = load_vae(job), require(job.experiment.encode.latent).batch_size

    def decode(latents: Tensor) -> Tensor:
        batches = (latents[first : first + size] for first in range(0, len(latents), size))
        return torch.cat([vae.decode(batch).cpu() for batch in batches])

    return decode
