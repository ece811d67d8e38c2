"""The recorded permutation: a function of its seed, with a digest for the manifest."""

from __future__ import annotations

import hashlib
from math import ceil

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray

from ocm_core.datasets.interface import ArraySplit, DataSet
from ocm_core.rng.streams import dataset_stream


def permutation(count: int, seed: int, split: int = 0) -> Int64[ndarray, " count"]:
    # NumPy promises that a generator's raw words never change; of `permutation` it does not
    words = dataset_stream(seed, split).bit_generator.random_raw(count)
    return np.argsort(words, kind="stable").astype(np.int64)


def recorded(order: Int64[ndarray, " count"], seed: int) -> dict[str, int | str]:
    return {"seed": seed, "sha256": hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()}


def divided(
    values: UInt8[ndarray, "n c h w"],
    labels: Int64[ndarray, " n"],
    *,
    levels: int,
    test_share: float,
    seed: int,
    source: str,
) -> DataSet:
    """Permuted, then the first part for training and the rest for testing."""
    order = permutation(len(values), seed)
    count = len(values) - ceil(test_share * len(values))
    parts = {"train": order[:count], "test": order[count:]}
    return DataSet(
        splits={split: ArraySplit(values[rows], labels[rows]) for split, rows in parts.items()},
        levels=levels,
        provenance={
            "source": source,
            "sha256": hashlib.sha256(values.tobytes() + labels.astype("<i8").tobytes()).hexdigest(),
            "permutation": recorded(order, seed),
        },
    )
