"""Kernel distance of two sets of features, known as KID where the features are Inception's.

The squared maximum mean discrepancy under k(x, y) = (x·y / d + 1)³, by the unbiased estimator: it
may be negative. As usual it is averaged over random subsets, because it is quadratic in their size.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from ocm_core.metrics import check_points, check_same_space
from ocm_core.rng.streams import Stream, stream
from ocm_core.shapes import Points


def kernel_distance(
    *, real: Points, generated: Points, subsets: int = 100, subset_size: int = 1000, seed: int
) -> float:
    """Mean over pairs of subsets of at most `subset_size`; the i-th is a function of (seed, i)."""
    check_points(real, "real", 2)
    check_points(generated, "generated", 2)
    check_same_space(real.shape[1], generated.shape[1])
    size = min(len(real), len(generated), subset_size)
    distances = [
        squared_discrepancy(
            _subset(real, size, seed, index, Stream.KERNEL_REAL),
            _subset(generated, size, seed, index, Stream.KERNEL_GENERATED),
        )
        for index in range(subsets)
    ]
    return float(torch.stack(distances).cpu().numpy().mean())


def squared_discrepancy(x: Points, y: Points) -> Float64[Tensor, ""]:
    """E k(x, x') + E k(y, y') - 2 E k(x, y) over pairs of different points."""
    x, y = x.double(), y.double()
    return _mean_within(x) + _mean_within(y) - 2 * kernel(x, y).mean()


def _mean_within(x: Float64[Tensor, "n d"]) -> Float64[Tensor, ""]:
    values = kernel(x, x)
    return (values.sum() - values.trace()) / (len(x) * (len(x) - 1))


def kernel(x: Float64[Tensor, "n d"], y: Float64[Tensor, "m d"]) -> Float64[Tensor, "n m"]:
    """k(x, y) = (x·y / d + 1)³ of all pairs."""
    return (x @ y.T).div_(x.shape[1]).add_(1.0).pow_(3)


def _subset(points: Points, size: int, seed: int, index: int, side: Stream) -> Points:
    rows = stream(side, seed, index).choice(len(points), size, replace=False)
    return points[torch.from_numpy(rows).to(points.device)]
