"""Precision and recall by k-nearest-neighbour manifolds, exact and in bounded memory.

The manifold of a set is the union of balls around its points, each reaching to the k-th nearest
other point. Precision: the share of generated points inside the real manifold; recall: the share of
real points inside the generated one. All distances are squared and come in square blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
class Manifold:
    """A set and its squared radii; distances are of centred points, in the type of `centre`."""

    points: Points
    radii: Float[Tensor, " n"]
    centre: Float[Tensor, " d"]
    block_bytes: int = BLOCK_BYTES  # bounds one block of distances; a few exist at a time

    @classmethod
    def of(
        cls,
        points: Points,
        *,
        neighbours: int = NEIGHBOURS,
        block_bytes: int = BLOCK_BYTES,
        dtype: torch.dtype = torch.float64,
    ) -> Manifold:
        """Return the manifold of points, with balls that reach to the k-th nearest neighbour."""
        check_points(points, "a manifold", neighbours + 1)
        centre = points.mean(0).to(dtype)
        bare = cls(points, centre.new_empty(0), centre, block_bytes)
        return replace(bare, radii=_radii(bare, neighbours))

    @classmethod
    def known(cls, points: Points, radii: Float[Tensor, " n"]) -> Manifold:
        """Return a manifold whose radii are known."""
        return cls(points, radii, points.mean(0).to(radii.dtype))

    def to(self, device: str) -> Manifold:
        points, radii, centre = (x.to(device) for x in (self.points, self.radii, self.centre))
        return Manifold(points, radii, centre, self.block_bytes)

    def blocks(self, count: int) -> list[slice]:
        """Return the rows of square blocks of distances."""
        side = max(1, isqrt(self.block_bytes // self.centre.itemsize))
        return [slice(first, first + side) for first in range(0, count, side)]

    def centred(self, points: Points) -> Points:
        """Return points about the centre of this set."""
        return (points - self.centre).to(self.centre.dtype)

    def norms(self, points: Points) -> Float[Tensor, " n"]:
        """‖x‖² of the centred points."""
        norms = self.centre.new_empty(len(points))
        for block in self.blocks(len(points)):
            norms[block] = self.centred(points[block]).square().sum(1)
        return norms


def precision_recall(*, real: Manifold, generated: Manifold) -> PrecisionRecall:
    """Both from one sweep over the distances between the sets, as the real side computes them.

    Distances are shortened by what cancellation leaves of them: ties are inside, whatever the
    blocks, and float64 is far below any gap between neighbours.
    """
    check_same_space(real.points.shape[1], generated.points.shape[1])
    inside_real = torch.zeros_like(generated.radii, dtype=torch.bool)
    inside_generated = torch.zeros_like(real.radii, dtype=torch.bool)
    rounding = 4 * torch.finfo(real.centre.dtype).eps * sqrt(len(real.centre))
    x_norms, y_norms = (real.norms(side.points) * (1 - rounding) for side in (real, generated))
    for row in real.blocks(len(real.points)):
        x = real.centred(real.points[row])
        for column in real.blocks(len(generated.points)):
            y = real.centred(generated.points[column])
            squares = squared_distances(x, x_norms[row], y, y_norms[column])
            inside_real[column] |= (squares <= real.radii[row, None]).any(0)
            inside_generated[row] |= (squares <= generated.radii[column]).any(1)
    return PrecisionRecall(share(inside_real), share(inside_generated))


def _radii(of: Manifold, neighbours: int) -> Float[Tensor, " n"]:
    """To the k-th nearest other point; a block above the diagonal serves its rows and columns."""
    points, norms, blocks = of.points, of.norms(of.points), of.blocks(len(of.points))
    nearest = of.centre.new_full((len(points), neighbours), inf)
    for i, row in enumerate(blocks):
        x = of.centred(points[row])
        own = squared_distances(x, norms[row], x, norms[row]).fill_diagonal_(inf)
        nearest[row] = _smallest(nearest[row], own)
        for column in blocks[i + 1 :]:
            squares = squared_distances(x, norms[row], of.centred(points[column]), norms[column])
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
