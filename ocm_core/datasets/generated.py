"""Images drawn here, for trying whole experiments: one coloured shape on a gradient.

Every image is a function of (seed, split, index), and its class decides shape and hue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64, UInt8
from numpy import ndarray

from ocm_core.datasets.interface import DataSet
from ocm_core.rng.streams import Purpose, stream
from ocm_core.schema.datasets import GeneratedData

Plane = Float64[ndarray, "side side"]

SPLITS = ("train", "test")
LOOKS = 24  # as many as there would be classes, where there are none
DRAWS = 13

# signed distances from the outline of a shape of radius 1 around the origin
SHAPES: tuple[Callable[[Plane, Plane], Plane], ...] = (
    lambda x, y: np.hypot(x, y) - 1,
    lambda x, y: np.maximum(np.abs(x), np.abs(y)) - 0.9,
    lambda x, y: np.abs(np.hypot(x, y) - 0.75) - 0.25,
    lambda x, y: np.maximum(np.minimum(np.abs(x), np.abs(y)) - 0.3, np.hypot(x, y) - 1),
    lambda x, y: np.abs(x) + np.abs(y) - 1.1,
)


@dataclass(frozen=True)
class GeneratedSplit:
    data: GeneratedData
    name: str
    captions: None = None

    def __len__(self) -> int:
        return self.data.train_size if self.name == "train" else self.data.test_size

    @property
    def labels(self) -> Int64[ndarray, " item"] | None:
        if not self.data.classes:
            return None
        return np.arange(len(self), dtype=np.int64) % self.data.classes

    def read(self, rows: range) -> UInt8[ndarray, "n 3 side side"]:
        values = np.empty((len(rows), *self.data.shape), np.uint8)
        for value, row in zip(values, rows, strict=True):
            value[:] = self._image(range(len(self))[row])
        return values

    def _image(self, index: int) -> UInt8[ndarray, "3 side side"]:
        draws = _uniforms(self.data.seed, SPLITS.index(self.name), index)
        if self.data.classes:
            look, looks = index % self.data.classes, self.data.classes
        else:
            look, looks = int(draws[-1] * LOOKS), LOOKS
        return _draw(self.data.side, look, look / looks, draws)


def open_data(data: GeneratedData, archives: Path) -> DataSet:
    splits = {name: GeneratedSplit(data, name) for name in SPLITS}
    return DataSet(
        splits={name: split for name, split in splits.items() if len(split)},
        levels=data.levels,
        provenance={"source": "generated", "seed": data.seed},
    )


def _uniforms(seed: int, split: int, index: int) -> Float64[ndarray, " draws"]:
    source = stream(Purpose.GENERATED_IMAGE, seed, index, part=split)
    words = source.bit_generator.random_raw(DRAWS)
    return (words >> np.uint64(11)) * 2.0**-53


def _draw(
    side: int, look: int, hue: float, draws: Float64[ndarray, " draws"]
) -> UInt8[ndarray, "3 side side"]:
    start, end = 0.7 * draws[:6].reshape(2, 3, 1, 1)
    angle, size, right, down, value, tint = draws[6:12]
    axis = (np.arange(side) + 0.5) * 2 / side - 1
    y, x = np.meshgrid(axis, axis, indexing="ij")
    slope = x * np.cos(2 * np.pi * angle) + y * np.sin(2 * np.pi * angle)
    ground = _mixed(start, end, 0.5 + slope / 8**0.5)
    radius = 0.3 + 0.3 * size
    outline = SHAPES[look % len(SHAPES)]
    distance = outline((x + 0.4 - 0.8 * right) / radius, (y + 0.4 - 0.8 * down) / radius)
    inside = np.clip(0.5 - distance * radius * side / 2, 0, 1)  # smooth over one pixel
    colour = (0.7 + 0.3 * value) * _colour(hue + 0.02 * tint)
    levels: ndarray = np.rint(255 * _mixed(ground, colour[:, None, None], inside))
    return levels.astype(np.uint8)


def _mixed(
    a: Float64[ndarray, "3 ..."], b: Float64[ndarray, "3 ..."], share: Plane
) -> Float64[ndarray, "3 side side"]:
    mixed: ndarray = a * (1 - share) + b * share
    return mixed


def _colour(hue: float) -> Float64[ndarray, "3"]:
    channels: ndarray = 0.5 + 0.5 * np.cos(2 * np.pi * (hue - np.arange(3) / 3))
    return channels
