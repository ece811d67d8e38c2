"""Points of a Gaussian mixture; `diffusion/mixture.py` has its closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ocm_core.datasets.interface import ArraySplit, DataSet
from ocm_core.diffusion.mixture import mixture
from ocm_core.rng.streams import Purpose, stream
from ocm_core.schema.datasets import MixtureData


def open_data(data: MixtureData, archives: Path) -> DataSet:
    sizes = {"train": data.train_size, "test": data.test_size}
    drawn = {
        split: mixture(data).draw(size, stream(Purpose.MIXTURE_POINTS, data.seed, part=number))
        for number, (split, size) in enumerate(sizes.items())
    }
    return DataSet(
        splits={split: ArraySplit(points.astype(np.float32)) for split, points in drawn.items()},
        levels=None,
        provenance={"source": "drawn from the mixture", "seed": data.seed},
    )
