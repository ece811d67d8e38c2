"""The 8×8 digits that come inside scikit-learn: 1797 images of 17 grey levels."""

from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

from ocm_core.datasets.base import DividedData, Share
from ocm_core.schema.block import Seed


class DigitsData(DividedData):
    """scikit-learn's digits, divided by a recorded permutation."""

    levels: ClassVar[int | None] = 17
    shape: ClassVar[tuple[int, ...]] = (1, 8, 8)
    classes: ClassVar[int] = 10
    count: ClassVar[int] = 1797
    source: ClassVar[str] = "sklearn.datasets.load_digits"
    kind: Literal["digits"]
    test_share: Share = 0.2
    seed: Seed = 0

    def read(self) -> tuple[UInt8[ndarray, "n 1 8 8"], Int64[ndarray, " n"]]:
        from sklearn.datasets import load_digits

        bundle = load_digits()
        return bundle.images.astype(np.uint8)[:, None], bundle.target.astype(np.int64)
