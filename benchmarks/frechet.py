"""The Fréchet distance of 2048-dimensional features, against clean-fid's formula.

clean-fid takes the square root of a product of covariances. Both times include the mean and
covariance of the generated set; those of the real set are computed once and are not timed.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from scipy.linalg import sqrtm
from torch import Tensor

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import Comparison, interleaved
from ocm_core.metrics.frechet import Statistics, frechet_distance

DIMENSIONS = 2048
REAL = 6000
MANY, FEW = 6000, 1024
REPEATS = 3


def features(seed: int, count: int, dimensions: int = DIMENSIONS) -> Tensor:
    """Correlated, with eigenvalues over several orders of magnitude, like those of networks."""
    draw = torch.Generator().manual_seed(seed)
    mixing = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(dimensions, dimensions, generator=mixing))
    scale = torch.exp(-4 * torch.arange(dimensions) / dimensions)
    drawn: Tensor = (torch.randn(count, dimensions, generator=draw) * scale) @ basis + 0.1 * seed
    return drawn


def theirs(real: Statistics, generated: Tensor) -> float:
    mean, covariance = real.mean.numpy(), real.covariance.numpy()
    points = generated.double().numpy()
    difference, own = np.mean(points, axis=0) - mean, np.cov(points, rowvar=False)
    root = sqrtm(own @ covariance).real
    return float(difference @ difference + np.trace(own) + np.trace(covariance - 2 * root))


@cache
def _runs(count: int) -> tuple[Comparison, float, float]:
    """The times, and both distances."""
    real, generated = Statistics.of(features(1, REAL)), features(2, count)
    found: dict[str, float] = {}

    def ours() -> None:
        fresh = Statistics(real.mean, real.covariance, real.count)  # no factor is kept over runs
        found["ours"] = frechet_distance(real=fresh, generated=generated)

    def baseline() -> None:
        found["theirs"] = theirs(real, generated)

    compared = interleaved(ours, baseline, REPEATS, warm=False)
    return compared, found["ours"], found["theirs"]


def _time(count: int) -> Measured:
    compared, ours, other = _runs(count)
    return compared.measured(samples=count, distance=ours, clean_fid=other)


def _difference() -> Measured:
    _, ours, other = _runs(MANY)
    return Measured.exactly(abs(ours - other), distance=ours, clean_fid=other)


BENCHMARKS = [
    Benchmark(
        name="frechet_time",
        what=f"Fréchet distance, {DIMENSIONS} dimensions, {MANY} samples",
        baseline="clean-fid's",
        target=1 / 5,
        measure=lambda: _time(MANY),
        note="5 times faster",
    ),
    Benchmark(
        name="frechet_difference",
        what="absolute difference of the two distances",
        baseline="clean-fid's",
        target=1e-8,
        measure=_difference,
        unit="difference",
    ),
    Benchmark(
        name="frechet_time_few",
        what=f"Fréchet distance, {DIMENSIONS} dimensions, {FEW} samples",
        baseline="clean-fid's",
        target=1 / 20,
        measure=lambda: _time(FEW),
        note="20 times faster",
    ),
]
