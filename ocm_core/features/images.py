"""Samples as images: decoded where they are latents, rounded to the grey levels of the data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import UInt8
from numpy import ndarray

from ocm_core.datasets.base import eight_bit

Decode = Callable[[torch.Tensor], torch.Tensor]  # samples → images in [-1, 1]


class SampleSet(Protocol):
    """Samples in a tensor, or on a disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> torch.Tensor: ...


@dataclass(frozen=True)
class SampleImages:
    """Samples as images, read a slice at a time."""

    samples: SampleSet
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


def in_batches(decode: Decode, size: int, latents: torch.Tensor) -> torch.Tensor:
    """Decode latents, so many at once."""
    return torch.cat([decode(few).cpu() for few in torch.split(latents, size)])


def identity(x: torch.Tensor) -> torch.Tensor:
    """Decode what is an image already."""
    return x
