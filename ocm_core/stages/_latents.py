"""The autoencoder of an experiment: images to latents for the store, samples back to images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ocm_core.data.interface import DataSet
from ocm_core.data.plan import DType
from ocm_core.diffusion.noise import generator
from ocm_core.latents.vae import Vae
from ocm_core.params.schema import Latent
from ocm_core.stages._settings import given

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def load_vae(job: Job) -> Vae:
    folder = job.inputs.get("vae/all") or job.inputs["fetch_vae/all"]
    return Vae.load(folder, job.device)


def decoder(job: Job) -> Callable[[Tensor], Tensor]:
    """Latents to images in [-1, 1], batch by batch."""
    vae, size = load_vae(job), given(job.experiment.encode.latent).batch_size

    def decode(latents: Tensor) -> Tensor:
        return torch.cat([vae.decode(batch).cpu() for batch in _batches(latents, size)])

    return decode


def encoding(job: Job, data: DataSet) -> LatentEncoding:
    settings, vae = given(job.experiment.encode.latent), load_vae(job)
    attrs = {
        "provenance": dict(data.provenance),
        "posterior": settings.posterior,
        "scaling_factor": vae.scaling_factor,
    }
    return LatentEncoding(vae, settings, given(data.levels), attrs)


def _batches(items: Tensor, size: int) -> Iterator[Tensor]:
    return (items[first : first + size] for first in range(0, len(items), size))


@dataclass(frozen=True)
class LatentEncoding:
    vae: Vae
    settings: Latent
    image_levels: int
    attrs: dict[str, Any]
    levels: None = None
    dtype: DType = "float32"

    @property
    def spread(self) -> bool:
        return self.settings.posterior == "keep"

    def __call__(self, images: ndarray, rows: range) -> dict[str, ndarray]:
        mean, std = self._posterior(images)
        if self.settings.posterior == "mean":
            return {"x": mean}
        if self.settings.posterior == "keep":
            return {"x": mean, "std": std}
        seed, shape = self.settings.seed, mean.shape[1:]
        noise = [generator(seed, row, "normal").standard_normal(shape) for row in rows]
        return {"x": mean + std * np.stack(noise).astype(np.float32)}

    def _posterior(self, images: ndarray) -> tuple[ndarray, ndarray]:
        pixels = torch.from_numpy(images).float() * (2 / (self.image_levels - 1)) - 1
        pairs = [self.vae.encode(batch) for batch in _batches(pixels, self.settings.batch_size)]
        mean, std = (torch.cat(values).cpu().numpy() for values in zip(*pairs, strict=True))
        return mean, std
