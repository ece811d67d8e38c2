"""The delete-a-block jackknife: what measures of a set of samples are without a part of it.

Without each of n blocks in turn, a measure deviates from the mean of these values by d₁ … dₙ. Its
standard error is √((n - 1)/n Σ dᵢ²), and that of a difference of two sets the same of their
difference: noise that they share cancels (`ocm_core/results/replicates.py`).
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy import ndarray
from torch import Tensor

from ocm_core.metrics import check_points
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.kernel_distance import kernel
from ocm_core.metrics.precision_recall import Manifold, share, squared_distances
from ocm_core.shapes import Points

PerBlock = Float64[ndarray, " block"]

MEASURES = ("frechet", "kernel_distance", "precision", "recall")
_ROWS = 1024  # that are compared with a whole set at a time


def left_out(
    values: Mapping[str, float],
    points: Points,
    blocks: int,
    *,
    statistics: Statistics,
    manifold: Manifold,
    neighbours: int,
    manifold_images: int | None = None,
) -> dict[str, PerBlock]:
    """Return each measure without each block: rows `seed0/without3` of the table of results.

    `values` are the whole set's, in the order of `MEASURES`, each moved by its block's deviation.
    """
    check_points(points, "generated", 2 * blocks)
    few = points[:manifold_images]
    without = (
        frechet_without(statistics, points, blocks),
        kernel_without(manifold.points, points, blocks),
        *manifold_without(manifold, few, blocks, neighbours=neighbours),
    )
    named = zip(values.items(), without, strict=True)
    return {name: value + (found - found.mean()) for (name, value), found in named}


def blocks_of(count: int, blocks: int) -> list[slice]:
    """Return slices of consecutive rows, whose sizes differ by one at most."""
    ends = np.linspace(0, count, blocks + 1).round().astype(int).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


def frechet_without(real: Statistics, points: Points, blocks: int) -> PerBlock:
    """Return the Fréchet distance without each block."""
    kept = (_without(points, part) for part in blocks_of(len(points), blocks))
    return np.array([frechet_distance(real=real, generated=rest) for rest in kept])


def kernel_without(real: Points, points: Points, blocks: int) -> PerBlock:
    """Return the unbiased kernel distance without each block, less the real points' own term."""
    x, parts = points.double(), blocks_of(len(points), blocks)
    sums = torch.stack([torch.stack([kernel(x[a], x[b]).sum() for b in parts]) for a in parts])
    squares = (x[part].square().sum(1) for part in parts)
    same = torch.stack([own.div_(x.shape[1]).add_(1.0).pow_(3).sum() for own in squares])
    rows = _rows(len(real))
    to_real = ([kernel(x[part], real[some].double()).sum() for some in rows] for part in parts)
    across = torch.stack([torch.stack(found).sum() / len(real) for found in to_real])
    kept = len(x) - torch.tensor([len(x[part]) for part in parts], device=x.device)
    own = sums.sum() - sums.sum(0) - sums.sum(1) + sums.diagonal() - (same.sum() - same)
    values = own / (kept * (kept - 1)) - 2 * (across.sum() - across) / kept
    return np.asarray(values.cpu().numpy())


def manifold_without(
    real: Manifold, points: Points, blocks: int, *, neighbours: int
) -> tuple[PerBlock, PerBlock]:
    """Return precision and recall; distances are computed once for all blocks."""
    parts = blocks_of(len(points), blocks)
    y, y_norms = real.centred(points), real.norms(points)
    radii = _radii_without(y, y_norms, parts, neighbours)
    inside_real = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    covered = torch.zeros(blocks, len(real.points), dtype=torch.bool, device=points.device)
    x_norms = real.norms(real.points)
    for rows in _rows(len(real.points)):
        squares = squared_distances(real.centred(real.points[rows]), x_norms[rows], y, y_norms)
        inside_real |= (squares <= real.radii[rows, None]).any(0)
        for i in range(blocks):
            covered[i, rows] = (squares <= radii[i]).any(1)
    precision = np.array([share(_without(inside_real, part)) for part in parts])
    return precision, np.array([share(covered[i]) for i in range(blocks)])


def _radii_without(
    y: Points, norms: Float[Tensor, " n"], parts: list[slice], neighbours: int
) -> Float[Tensor, "block n"]:
    """Return squared distances to the k-th nearest other point left in; -∞ for those left out."""
    radii = y.new_empty(len(parts), len(y))
    for rows in _rows(len(y)):
        squares = squared_distances(y[rows], norms[rows], y, norms)
        own = torch.arange(rows.start, rows.start + len(squares), device=y.device)
        squares[own - rows.start, own] = torch.inf
        for i, part in enumerate(parts):
            kept = torch.cat([squares[:, : part.start], squares[:, part.stop :]], 1)
            nearest = kept.topk(neighbours, dim=1, largest=False).values[:, -1]
            radii[i, rows] = nearest.clamp(min=0)
    for i, part in enumerate(parts):
        radii[i, part] = -torch.inf
    return radii


def _without(values: Tensor, part: slice) -> Tensor:
    return torch.cat([values[: part.start], values[part.stop :]])


def _rows(count: int) -> list[slice]:
    return [slice(first, first + _ROWS) for first in range(0, count, _ROWS)]
