"""Precision and recall by k-nearest-neighbour manifolds, exact and in bounded memory.

The manifold of a set is the union of balls around its points, each reaching to the k-th nearest
other point. Precision: the share of generated points inside the real manifold; recall: the share of
real points inside the generated one. All distances are squared and come in square blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isqrt, sqrt
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ocm_core.metrics import check_points, check_same_space
from ocm_core.shapes import Points

NEIGHBOURS = 3
BLOCK_BYTES = 8 * 2**20


class PrecisionRecall(NamedTuple):
    """Shares of samples near the data, and of data near samples."""

    precision: float
    recall: float


@dataclass(frozen=True)
class Sweep:
    """How points are taken a block at a time: about which centre, in which type, how many."""

    centre: Float[Tensor, " d"]
    block_bytes: int

    @classmethod
    def about(cls, points: Points, block_bytes: int, dtype: torch.dtype) -> Sweep:
        return cls(points.mean(0).to(dtype), block_bytes)

    def blocks(self, count: int) -> list[slice]:
        side = max(1, isqrt(self.block_bytes // self.centre.itemsize))
        return [slice(first, first + side) for first in range(0, count, side)]

    def centred(self, points: Points) -> Points:
        return (points - self.centre).to(self.centre.dtype)

    def norms(self, points: Points) -> Float[Tensor, " n"]:
        """‖x‖² of the centred points."""
        norms = self.centre.new_empty(len(points))
        for block in self.blocks(len(points)):
            norms[block] = self.centred(points[block]).square().sum(1)
        return norms

    @property
    def rounding(self) -> float:
        """Bound what cancellation leaves of a distance, as a share of ‖x‖² + ‖y‖².

        Centring keeps it small, and float64 far below any gap between neighbours.
        """
        return 4 * torch.finfo(self.centre.dtype).eps * sqrt(len(self.centre))


@dataclass(frozen=True)
class Manifold:
    """A set and its squared radii, to be compared with any number of others."""

    points: Points
    radii: Float[Tensor, " n"]
    sweep: Sweep

    @classmethod
    def of(
        cls,
        points: Points,
        *,
        neighbours: int = NEIGHBOURS,
        block_bytes: int = BLOCK_BYTES,
        dtype: torch.dtype = torch.float64,
    ) -> Manifold:
        """`block_bytes` bounds one block of distances; a few exist at a time, beside the points.

        Blocks are computed in `dtype`, whatever the points are stored in.
        """
        check_points(points, "a manifold", neighbours + 1)
        sweep = Sweep.about(points, block_bytes, dtype)
        return cls(points, _radii(points, neighbours, sweep), sweep)

    @classmethod
    def known(
        cls, points: Points, radii: Float[Tensor, " n"], *, block_bytes: int = BLOCK_BYTES
    ) -> Manifold:
        """Return a manifold whose radii are known."""
        return cls(points, radii, Sweep.about(points, block_bytes, radii.dtype))

    def to(self, device: str) -> Manifold:
        """Move the manifold to a device."""
        sweep = Sweep(self.sweep.centre.to(device), self.sweep.block_bytes)
        return Manifold(self.points.to(device), self.radii.to(device), sweep)


def precision_recall(*, real: Manifold, generated: Manifold) -> PrecisionRecall:
    """Both from one sweep over the distances between the sets, as the real side computes them.

    Distances are shortened by their rounding error: ties are inside, whatever the blocks.
    """
    check_same_space(real.points.shape[1], generated.points.shape[1])
    return PrecisionRecall(*map(share, _inside(real, generated)))


def _inside(
    real: Manifold, generated: Manifold
) -> tuple[Bool[Tensor, " generated"], Bool[Tensor, " real"]]:
    """Which generated points the real manifold holds, and the other way round."""
    inside_real = torch.zeros_like(generated.radii, dtype=torch.bool)
    inside_generated = torch.zeros_like(real.radii, dtype=torch.bool)
    sweep = real.sweep
    x_norms, y_norms = (
        sweep.norms(side.points) * (1 - sweep.rounding) for side in (real, generated)
    )
    for row in sweep.blocks(len(real.points)):
        x = sweep.centred(real.points[row])
        for column in sweep.blocks(len(generated.points)):
            y = sweep.centred(generated.points[column])
            squares = squared_distances(x, x_norms[row], y, y_norms[column])
            inside_real[column] |= (squares <= real.radii[row, None]).any(0)
            inside_generated[row] |= (squares <= generated.radii[column]).any(1)
    return inside_real, inside_generated


def _radii(points: Points, neighbours: int, sweep: Sweep) -> Float[Tensor, " n"]:
    """To the k-th nearest other point; a block above the diagonal serves its rows and columns."""
    nearest = sweep.centre.new_full((len(points), neighbours), inf)
    norms, blocks = sweep.norms(points), sweep.blocks(len(points))
    for i, row in enumerate(blocks):
        x = sweep.centred(points[row])
        own = squared_distances(x, norms[row], x, norms[row]).fill_diagonal_(inf)
        nearest[row] = _smallest(nearest[row], own)
        for column in blocks[i + 1 :]:
            squares = squared_distances(x, norms[row], sweep.centred(points[column]), norms[column])
            nearest[row] = _smallest(nearest[row], squares)
            nearest[column] = _smallest(nearest[column], squares.T)
    return nearest[:, -1].clamp(min=0)


def _smallest(
    so_far: Float[Tensor, "row k"], squares: Float[Tensor, "row column"]
) -> Float[Tensor, "row k"]:
    neighbours = so_far.shape[1]
    new = squares.topk(min(neighbours, squares.shape[1]), dim=1, largest=False).values
    return torch.cat([so_far, new], 1).topk(neighbours, dim=1, largest=False).values


def squared_distances(
    x: Float[Tensor, "row d"],
    x_norms: Float[Tensor, " row"],
    y: Float[Tensor, "column d"],
    y_norms: Float[Tensor, " column"],
) -> Float[Tensor, "row column"]:
    """‖x‖² - 2 x·y + ‖y‖²; where points coincide, rounding may leave it below 0."""
    return torch.addmm(y_norms, x, y.T, alpha=-2).add_(x_norms[:, None])


def share(inside: Bool[Tensor, " n"]) -> float:
    """Return the share of points that are inside."""
    return float(inside.double().mean())
