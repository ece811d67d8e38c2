"""Samples as images: decoded where they are latents, rounded to the grey levels of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import UInt8
from numpy import ndarray

from ocm_core.datasets.base import eight_bit
from ocm_core.stages import Inputs, require
from ocm_core.stages.fetch_vae import load_vae

if TYPE_CHECKING:
    from ocm_core.latents.vae import Vae
    from ocm_core.stages.sample import CellSamples

Decode = Callable[[torch.Tensor], torch.Tensor]  # samples → images in [-1, 1]


@dataclass(frozen=True)
class SampleImages:
    """Samples as images, read a slice at a time."""

    samples: CellSamples | torch.Tensor
    decode: Decode
    levels: int

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, rows: slice) -> UInt8[torch.Tensor, "n channel height width"]:
        images = self.decode(self.samples[rows]).clamp(-1, 1).double()
        return eight_bit(((images + 1) / 2 * (self.levels - 1)).round(), self.levels)


def shown_pixels(images: torch.Tensor) -> ndarray:
    """Return uint8 images as pages show them: grey ones without their channel, colours last."""
    array = images.permute(0, 2, 3, 1).numpy()
    return array[..., 0] if array.shape[-1] == 1 else array


def image_reader(job: Inputs) -> Callable[[CellSamples | torch.Tensor], SampleImages]:
    """Return what turns samples of this experiment into images."""
    levels = require(job.experiment.data.levels)
    return partial(SampleImages, decode=decoder(job), levels=levels)


def decoder(job: Inputs) -> Decode:
    """Return what decodes samples; the identity where they are images already."""
    if (latent := job.experiment.encode.latent) is None:
        return identity
    return partial(decoded, load_vae(job), latent.batch_size)


def decoded(vae: Vae, size: int, latents: torch.Tensor) -> torch.Tensor:
    """Decode latents, so many at once."""
    return torch.cat([vae.decode(few).cpu() for few in torch.split(latents, size)])


def identity(x: torch.Tensor) -> torch.Tensor:
    """Decode what is an image already."""
    return x
