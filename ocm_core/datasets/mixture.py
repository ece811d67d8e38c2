"""Points of a Gaussian mixture; `diffusion/mixture.py` has its closed forms."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from ocm_core.datasets.base import DataParams, DataSet, array_split
from ocm_core.schema.block import Params, Positive, Seed, SetSize


class GridLayout(Params):
    """Modes on a square grid centred at the origin."""

    kind: Literal["grid"]
    per_axis: Annotated[int, Field(ge=1, le=100)]
    spacing: Positive


class UniformLayout(Params):
    """Modes drawn once, uniformly over a square, from a recorded seed."""

    kind: Literal["uniform"]
    modes: Annotated[int, Field(ge=1, le=10**4)]
    half_width: Positive
    seed: Seed


class MixtureData(DataParams):
    """An equal-weight mixture of isotropic Gaussians in the plane, in units of `scale`."""

    levels: ClassVar[int | None] = None
    shape: ClassVar[tuple[int, ...]] = (2,)
    classes: ClassVar[int] = 0
    kind: Literal["mixture"]
    layout: Annotated[GridLayout | UniformLayout, Field(discriminator="kind")]
    std: Positive
    scale: Positive = 1.0
    train_size: SetSize = 20_000
    test_size: SetSize = 4000
    seed: Seed = 0

    def open(self, archives: Path) -> DataSet:
        from ocm_core.diffusion.mixture import mixture
        from ocm_core.rng.streams import Stream, stream

        splits = {}
        for number, (split, size) in enumerate(self.count_items().items()):
            source = stream(Stream.MIXTURE_POINTS, self.seed, part=number)
            splits[split] = array_split(mixture(self).draw(size, source).astype(np.float32))
        return DataSet(splits, None, {"source": "drawn from the mixture", "seed": self.seed})

    def count_items(self) -> dict[str, int]:
        return {"train": self.train_size, "test": self.test_size}
