"""The autoencoder of an experiment: images to latents for the store, samples back to images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.latents.vae import LatentEncoding, Vae
from ocm_core.schema.block import require
from ocm_core.stages.fetch_vae import FetchedVae
from ocm_core.stages.vae import TrainedVae

if TYPE_CHECKING:
    from ocm_core.datasets.base import DataSet
    from ocm_core.pipeline.job import Inputs


def load_vae(job: Inputs) -> Vae:
    artifact = job.find(TrainedVae) or job.take(FetchedVae)
    return Vae.load(artifact.folder, job.device)


def encoding(job: Inputs, data: DataSet) -> LatentEncoding:
    """Return how images become latents, as the parameters say."""
    settings = require(job.experiment.encode.latent)
    return LatentEncoding(
        vae=load_vae(job),
        image_levels=require(data.levels),
        posterior=settings.posterior,
        seed=settings.seed,
        batch_size=settings.batch_size,
        provenance=data.provenance,
    )


class LatentDecoder:
    """Decodes latents to images in [-1, 1], batch by batch."""

    def __init__(self, job: Inputs) -> None:
        self.vae = load_vae(job)
        self.batch_size = require(job.experiment.encode.latent).batch_size

    def __call__(self, latents: Tensor) -> Tensor:
        starts = range(0, len(latents), self.batch_size)
        batches = (latents[first : first + self.batch_size] for first in starts)
        return torch.cat([self.vae.decode(batch).cpu() for batch in batches])
