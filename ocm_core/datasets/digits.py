"""The 8×8 digits that come inside scikit-learn: 1797 images of 17 grey levels."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from ocm_core.datasets.base import DataParams, DataSet, Share, divided, divided_sizes
from ocm_core.schema.block import Seed

COUNT = 1797


class DigitsData(DataParams):
    """scikit-learn's digits, divided by a recorded permutation."""

    levels: ClassVar[int | None] = 17
    shape: ClassVar[tuple[int, ...]] = (1, 8, 8)
    classes: ClassVar[int] = 10
    kind: Literal["digits"]
    test_share: Share = 0.2
    seed: Seed = 0

    def open(self, archives: Path) -> DataSet:
        from sklearn.datasets import load_digits

        bundle = load_digits()
        return divided(
            bundle.images.astype(np.uint8)[:, None],
            bundle.target.astype(np.int64),
            levels=self.levels,
            test_share=self.test_share,
            seed=self.seed,
            source="sklearn.datasets.load_digits",
        )

    def count_items(self) -> dict[str, int]:
        return divided_sizes(COUNT, self.test_share)


PARAMS = DigitsData
