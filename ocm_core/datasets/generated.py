"""Images drawn here, for trying whole experiments: one coloured shape on a gradient.

Every image is a function of (seed, split, index), and its class decides shape and hue.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64, UInt8
from numpy import ndarray
from pydantic import Field

from ocm_core.datasets.base import DataParams, DataSet, Split
from ocm_core.schema.block import Seed, SetSize

Plane = Float64[ndarray, "side side"]
Colours = Float64[ndarray, "3 ..."]
UniformDraws = Float64[ndarray, " draws"]

LOOKS = 24  # as many as there would be classes, where there are none
DRAWS = 13
SHAPES: tuple[Callable[[Plane, Plane], Plane], ...] = (  # signed distances from outlines
    lambda x, y: np.hypot(x, y) - 1,
    lambda x, y: np.maximum(np.abs(x), np.abs(y)) - 0.9,
    lambda x, y: np.abs(np.hypot(x, y) - 0.75) - 0.25,
    lambda x, y: np.maximum(np.minimum(np.abs(x), np.abs(y)) - 0.3, np.hypot(x, y) - 1),
    lambda x, y: np.abs(x) + np.abs(y) - 1.1,
)


class GeneratedData(DataParams):
    """Shapes on gradients; `classes: 0`: without labels, `test_size: 0`: no test split."""

    kind: Literal["generated"]
    side: Annotated[int, Field(ge=1, le=2**12)]
    classes: Annotated[int, Field(ge=0, le=10**6)] = 0
    train_size: SetSize = 64
    test_size: Annotated[int, Field(ge=0, le=10**8)] = 16
    seed: Seed = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.side, self.side)

    def open(self, archives: Path) -> DataSet:
        splits = {}
        for part, (name, count) in enumerate(self.count_items().items()):
            labels = np.arange(count) % self.classes if self.classes else None
            splits[name] = Split(count, self.shape, partial(self._item, part), labels)
        return DataSet(splits, self.levels, {"source": "generated", "seed": self.seed})

    def count_items(self) -> dict[str, int]:
        sizes = {"train": self.train_size, "test": self.test_size}
        return {name: size for name, size in sizes.items() if size}

    def _item(self, part: int, index: int) -> UInt8[ndarray, "3 side side"]:
        """Draw the image at a place of the training (0) or the test split (1)."""
        from ocm_core.rng.streams import Stream, stream

        source = stream(Stream.GENERATED_IMAGE, self.seed, index, part=part)
        draws = (source.bit_generator.random_raw(DRAWS) >> np.uint64(11)) * 2.0**-53
        looks = self.classes or LOOKS
        look = index % looks if self.classes else int(draws[-1] * LOOKS)
        return _draw(self.side, look, look / looks, draws)


def _draw(side: int, look: int, hue: float, draws: UniformDraws) -> UInt8[ndarray, "3 side side"]:
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
    hues = 0.5 + 0.5 * np.cos(2 * np.pi * (hue + 0.02 * tint - np.arange(3) / 3))
    colour = (0.7 + 0.3 * value) * hues
    levels: ndarray = np.rint(255 * _mixed(ground, colour[:, None, None], inside))
    return levels.astype(np.uint8)


def _mixed(a: Colours, b: Colours, share: Plane) -> Colours:
    mixed: ndarray = a * (1 - share) + b * share
    return mixed
