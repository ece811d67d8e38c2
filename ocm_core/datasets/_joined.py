"""Images that lie in several arrays: read as one split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray


@dataclass(frozen=True)
class JoinedSplit:
    """Batches one after another, in memory or in memory maps."""

    batches: Sequence[UInt8[ndarray, "_ values"]]
    labels: Int64[ndarray, " item"]
    shape: tuple[int, ...]
    captions: None = None

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, rows: range) -> UInt8[ndarray, "n channel height width"]:
        ends = np.cumsum([len(batch) for batch in self.batches])
        batch_of = np.searchsorted(ends, rows, side="right")
        values = np.empty((len(rows), *self.shape), np.uint8)
        for batch in np.unique(batch_of):
            here = batch_of == batch
            within = np.asarray(rows)[here] - (ends[batch - 1] if batch else 0)
            values[here] = self.batches[batch][within].reshape(-1, *self.shape)
        return values
