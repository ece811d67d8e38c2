"""The random streams of loading and encoding: counter-based, a function of (seed, index).

The third word of the counter keeps them apart from those of sampling (0) and of training (1).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

_LOADING = 2
_PURPOSES = {"chunks": 0, "batch": 1, "item": 2}


def stream(
    seed: int, index: int, purpose: Literal["chunks", "batch", "item"]
) -> np.random.Generator:
    """`chunks` of an epoch; posterior noise of a `batch`, by iteration; of an `item`, by index."""
    counter = [0, 0, _LOADING, _PURPOSES[purpose]]
    return np.random.Generator(np.random.Philox(key=[seed, index], counter=counter))
