"""Maximum mean discrepancy with a mean of Gaussian kernels.

k(x, y) = mean_h exp(-‖x - y‖² / (2 h²)); the value is the root of the (non-negative) V-statistic
E k(x, x') + E k(y, y') - 2 E k(x, y), so that two samples of the data itself differ by O(1/√n).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor

from ocm_core.shapes import Points

_BLOCK = 256


def mean_kernel(x: Points, y: Points, bandwidths: Sequence[float]) -> float:
    """E k(x, y) over all pairs, a block of rows at a time."""
    total = 0.0
    for first in range(0, len(x), _BLOCK):
        rows = x[first : first + _BLOCK]
        squares = torch.cdist(rows, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        total += sum(float(k.sum(1).double().sum()) for k in _kernels(squares, bandwidths))
    return total / (len(bandwidths) * len(x) * len(y))


def _kernels(squares: Tensor, bandwidths: Sequence[float]) -> Iterator[Tensor]:
    """exp(-‖·‖² / (2 h²)) from the widest to the narrowest.

    Halving h raises the kernel to the fourth power: two squarings, where an exponential costs ten
    times as much. Each kernel is overwritten by the next.
    """
    widest, *narrower = sorted(bandwidths, reverse=True)
    kernel = torch.exp(squares * (-0.5 / widest**2))
    yield kernel
    for before, h in pairwise([widest, *narrower]):
        if before == 2 * h:
            kernel.square_().square_()
        else:
            kernel = torch.exp(squares * (-0.5 / h**2))
        yield kernel


@dataclass(frozen=True)
class MmdTo:
    """Distances to one reference set, whose own term is computed once."""

    reference: Points
    bandwidths: Sequence[float]

    @cached_property
    def own(self) -> float:
        return mean_kernel(self.reference, self.reference, self.bandwidths)

    def __call__(self, samples: Points) -> float:
        if not bool(torch.isfinite(samples).all()):
            return float("nan")
        within = mean_kernel(samples, samples, self.bandwidths)
        between = mean_kernel(samples, self.reference, self.bandwidths)
        return sqrt(max(0.0, within + self.own - 2.0 * between))
