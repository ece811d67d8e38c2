"""Samples as images: decoded where they are latents, rounded to the grey levels of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from jaxtyping import UInt8
from torch import Tensor

from ocm_core.datasets.eight_bit import eight_bit
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

Decode = Callable[[Tensor], Tensor]  # samples → images in [-1, 1]


class Samples(Protocol):
    """What can be shown as images: the samples of a cell, or others."""

    @property
    def count(self) -> int: ...

    def read(self, rows: range) -> Tensor: ...


@dataclass(frozen=True)
class SampleImages:
    """Samples as images, read a slice at a time."""

    samples: Samples
    decode: Decode
    levels: int

    def __len__(self) -> int:
        return self.samples.count

    def __getitem__(self, rows: slice) -> UInt8[Tensor, "n channel height width"]:
        x = self.samples.read(range(*rows.indices(len(self))))
        images = self.decode(x).clamp(-1, 1).double()
        return eight_bit(((images + 1) / 2 * (self.levels - 1)).round(), self.levels)


def image_reader(job: Job) -> Callable[[Samples], SampleImages]:
    decode: Decode = _unchanged
    if job.experiment.encode.latent:
        decode = import_module("ocm_core.artifacts.autoencoder").decoder(job)
    levels = require(job.experiment.data.levels)
    return partial(SampleImages, decode=decode, levels=levels)


def _unchanged(x: Tensor) -> Tensor:
    return x
