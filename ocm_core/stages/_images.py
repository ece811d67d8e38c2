"""Images as feature spaces and pages want them: uint8, 0 … 255, read a slice at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.datasets.interface import Split
from ocm_core.features.interface import UInt8Images
from ocm_core.stages._settings import given
from ocm_core.stages.sample import Drawn

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

ToImages = Callable[[Tensor], Tensor]  # what is diffused → images in [-1, 1]


@dataclass(frozen=True)
class DataImages:
    """A split of the data set; its grey levels are spread over 0 … 255."""

    split: Split
    levels: int

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, rows: slice) -> UInt8Images:
        values = self.split.read(range(*rows.indices(len(self.split))))
        return _spread(torch.from_numpy(values).double(), self.levels)


@dataclass(frozen=True)
class SampleImages:
    """The samples of a cell, rounded to the grey levels of the data."""

    drawn: Drawn
    to_images: ToImages
    levels: int

    def __len__(self) -> int:
        return self.drawn.count

    def __getitem__(self, rows: slice) -> UInt8Images:
        x = self.drawn.read(range(*rows.indices(len(self))))
        images = self.to_images(x).clamp(-1, 1).double()
        return _spread(((images + 1) / 2 * (self.levels - 1)).round(), self.levels)


def _spread(values: Tensor, levels: int) -> UInt8Images:
    return (values * (255 / (levels - 1))).round().to(torch.uint8)


def image_maker(job: Job) -> Callable[[Drawn], SampleImages]:
    """Decodes latents where there are any; pixels are what they are."""
    to_images: ToImages = _unchanged
    if job.experiment.encode.latent:
        to_images = import_module("ocm_core.stages._latents").decoder(job)
    levels = given(job.experiment.data.levels)
    return partial(SampleImages, to_images=to_images, levels=levels)


def _unchanged(x: Tensor) -> Tensor:
    return x
