"""Time and memory of precision and recall, block by block against all distances at once."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved, peak_bytes
from ocm_core.metrics.precision_recall import (
    BLOCK_BYTES,
    NEIGHBOURS,
    Manifold,
    PrecisionRecall,
    precision_recall,
)

DIMENSIONS = 64
REPEATS = {5_000: 5, 20_000: 3}
BLOCKS = (2 * 2**20, 8 * 2**20)  # bytes
MEMORY_POINTS = 5_000


def points(seed: int, count: int, dimensions: int = DIMENSIONS) -> Tensor:
    return torch.randn(count, dimensions, generator=torch.Generator().manual_seed(seed))


def by_blocks(real: Tensor, generated: Tensor, block_bytes: int = BLOCK_BYTES) -> PrecisionRecall:
    real_manifold, other = (Manifold.of(x, block_bytes=block_bytes) for x in (real, generated))
    return precision_recall(real=real_manifold, generated=other)


def at_once(real: Tensor, generated: Tensor) -> PrecisionRecall:
    """From whole matrices of squared distances, in float64 like the blocks."""
    x, y = real.double(), generated.double()
    x_radii, y_radii = _radii(x), _radii(y)
    between = _squares(x, y)
    precision = (between <= x_radii[:, None]).any(0).double().mean()
    recall = (between <= y_radii).any(1).double().mean()
    return PrecisionRecall(float(precision), float(recall))


def _squares(x: Tensor, y: Tensor) -> Tensor:
    """In place, so that the baseline is a fair one."""
    products = torch.addmm(y.square().sum(1), x, y.T, alpha=-2)
    return products.add_(x.square().sum(1)[:, None])


def _radii(x: Tensor) -> Tensor:
    """One neighbour more than asked for: the nearest is the point itself."""
    nearest = _squares(x, x).topk(NEIGHBOURS + 1, dim=1, largest=False).values
    return nearest[:, -1]


def _time(count: int) -> Measured:
    real, generated = points(1, count), points(2, count)
    compared = interleaved(
        lambda: by_blocks(real, generated),
        lambda: at_once(real, generated),
        REPEATS[count],
        warm=False,
    )
    return compared.measured(points=count, dimensions=DIMENSIONS)


def _memory() -> Measured:
    """As a multiple of the block size; the larger of the figures for two sizes."""
    real, generated = points(1, MEMORY_POINTS), points(2, MEMORY_POINTS)
    peaks = {size: peak_bytes(partial(by_blocks, real, generated, size)) for size in BLOCKS}
    whole = peak_bytes(lambda: at_once(real, generated))
    worst = max(peak / size for size, peak in peaks.items())
    return Measured.exactly(
        worst,
        points=MEMORY_POINTS,
        peak_bytes={str(size): peak for size, peak in peaks.items()},
        all_at_once_bytes=whole,
    )


BENCHMARKS = [
    *(
        Benchmark(
            name=f"recall_{count // 1000}k",
            what=f"precision and recall, {count:,} points a side, {DIMENSIONS} dimensions",
            baseline="all distances at once",
            target=1 / 1.2,
            measure=partial(_time, count),
            note="1.2 times faster",
        )
        for count in REPEATS
    ),
    Benchmark(
        name="recall_memory",
        what="peak memory of precision and recall, in blocks of distances",
        baseline="`block_bytes`, the parameter that bounds it",
        target=6.0,
        measure=_memory,
        note="a few blocks at a time",
    ),
]
