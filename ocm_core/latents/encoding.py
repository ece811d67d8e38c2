"""Encode images to latents, as the stage `encode` stores them.

`mean` stores the mean of the autoencoder's posterior; `sample` one sample, whose noise depends on
seed and index only; `keep` mean and standard deviation, so that training draws a new sample each
time. All of them are scaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import UInt8
from numpy import ndarray

from ocm_core.latents.vae import Vae, VaeLatents
from ocm_core.prefetch import moved, pinned
from ocm_core.rng.streams import Stream, stream
from ocm_core.store.layout import DType

Posterior = Literal["mean", "sample", "keep"]


@dataclass(frozen=True)
class LatentEncoding:
    """The encoding of a store of images."""

    vae: Vae
    image_levels: int  # grey levels of the images
    posterior: Posterior
    seed: int  # of `sample`
    batch_size: int
    provenance: Mapping[str, Any]
    dtype: DType = "float32"

    @property
    def levels(self) -> None:
        """None: a latent has no grey levels."""

    @property
    def spread(self) -> bool:
        return self.posterior == "keep"

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "scaling_factor": self.vae.scaling_factor,
            "shift_factor": self.vae.shift_factor,
            "posterior": self.posterior,
            "provenance": dict(self.provenance),
        }

    def __call__(self, images: UInt8[ndarray, "n c h w"], rows: range) -> dict[str, ndarray]:
        """Return the arrays to store; `rows` are the indices of the images in their split."""
        parts = zip(*self._batches(images), strict=True)
        mean, std = (torch.cat(part).cpu().numpy() for part in parts)
        if self.posterior == "mean":
            return {"x": mean}
        if self.posterior == "keep":
            return {"x": mean, "std": std}
        for place, row in enumerate(rows):
            noise = stream(Stream.STORE_ITEM, self.seed, row).standard_normal(
                mean.shape[1:], dtype=np.float32
            )
            mean[place] += std[place] * noise
        return {"x": mean}

    def _batches(
        self, images: UInt8[ndarray, "n c h w"]
    ) -> Iterator[tuple[VaeLatents, VaeLatents]]:
        """Encode on the device; grey levels travel as they are stored and are scaled there."""
        device = self.vae.model.device
        for start in range(0, len(images), self.batch_size):
            stored = torch.tensor(images[start : start + self.batch_size])
            levels = moved(pinned(stored, device), device).float()
            yield self.vae.encode(2 * levels / (self.image_levels - 1) - 1)
