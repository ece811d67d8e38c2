"""The 8×8 digits that come inside scikit-learn: 1797 images of 17 grey levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from ocm_core.datasets._permutation import divided
from ocm_core.datasets.interface import DataSet
from ocm_core.schema.datasets import DigitsData


def open_data(data: DigitsData, archives: Path) -> DataSet:
    bundle = load_digits()
    return divided(
        bundle.images.astype(np.uint8)[:, None],
        bundle.target.astype(np.int64),
        levels=data.levels,
        test_share=data.test_share,
        seed=data.seed,
        source="sklearn.datasets.load_digits",
    )
