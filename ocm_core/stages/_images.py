"""Samples as images: decoded where they are latents, rounded to the grey levels of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from ocm_core.datasets.base import eight_bit
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

    from ocm_core.pipeline.job import Inputs

Decode = Callable[[Tensor], Tensor]  # samples → images in [-1, 1]


class ReadableSamples(Protocol):
    """Samples that can be shown as images: those of a cell, or others."""

    @property
    def count(self) -> int: ...

    def read(self, rows: range) -> Tensor: ...


@dataclass(frozen=True)
class InMemorySamples:
    """Samples that were just drawn."""

    x: Tensor

    @property
    def count(self) -> int:
        return len(self.x)

    def read(self, rows: range) -> Tensor:
        return self.x[rows.start : rows.stop]


@dataclass(frozen=True)
class SampleImages:
    """Samples as images, read a slice at a time."""

    samples: ReadableSamples
    decode: Decode
    levels: int

    def __len__(self) -> int:
        return self.samples.count

    def __getitem__(self, rows: slice) -> UInt8[Tensor, "n channel height width"]:
        x = self.samples.read(range(*rows.indices(len(self))))
        images = self.decode(x).clamp(-1, 1).double()
        return eight_bit(((images + 1) / 2 * (self.levels - 1)).round(), self.levels)


def shown_pixels(images: Tensor) -> ndarray:
    """Return uint8 images as pages show them: grey ones without their channel, colours last."""
    array = images.permute(0, 2, 3, 1).numpy()
    return array[..., 0] if array.shape[-1] == 1 else array


def image_reader(job: Inputs) -> Callable[[ReadableSamples], SampleImages]:
    """Return what turns samples of this experiment into images."""
    levels = require(job.experiment.data.levels)
    return partial(SampleImages, decode=decoder(job), levels=levels)


def decoder(job: Inputs) -> Decode:
    """Return what decodes samples; the identity where they are images already."""
    if not job.experiment.encode.latent:
        return identity
    decode: Decode = import_module("ocm_core.stages._latents").LatentDecoder(job)
    return decode


def identity(x: Tensor) -> Tensor:
    """Decode what is an image already."""
    return x
