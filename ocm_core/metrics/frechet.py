"""Fréchet distance of two Gaussians, known as FID where the features are Inception's.

    ‖μ₁ - μ₂‖² + tr S₁ + tr S₂ - 2 tr √(S₁ S₂)

With any factors S = F Fᵀ the last trace is the sum of the singular values of F₁ᵀ F₂: no matrix
square root is taken. The real side's factor is computed once, whatever it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.metrics import check_points, check_same_space
from ocm_core.shapes import Points

Vector = Float64[Tensor, " d"]
Matrix = Float64[Tensor, "d d"]

_ROWS = 4096
_AGAIN = "make it again, or fetch the published file again"
_EPSILON = torch.finfo(torch.float64).eps
_TOLERANCE = 1e-11  # of tr √(S₁ S₂), relative to tr S₁ + tr S₂


@dataclass(frozen=True)
class Statistics:
    """Mean and covariance (N - 1 in the denominator) of a set of features, in float64."""

    mean: Vector
    covariance: Matrix
    count: int | None  # None: a published file that does not tell

    @classmethod
    def of(cls, features: Points) -> Statistics:
        return cls.over(torch.split(features, _ROWS))

    def to(self, device: str) -> Statistics:
        return replace(self, mean=self.mean.to(device), covariance=self.covariance.to(device))

    @classmethod
    def over(cls, batches: Iterable[Points]) -> Statistics:
        """Return the statistics of a set in pieces, each about its own mean: nothing cancels."""
        count, mean, scatter = 0, torch.zeros(()), torch.zeros(())
        for batch in batches:
            check_points(batch, "features", 1)
            share = len(batch) / (count + len(batch))
            centre = batch.mean(0, dtype=torch.float64)
            spread, shift = batch - centre, centre - mean
            scatter = scatter + _gram(spread) + count * share * torch.outer(shift, shift)
            mean, count = mean + share * shift, count + len(batch)
        if count < 2:
            raise OcmError(f"a covariance needs at least 2 feature vectors, found {count}")
        return cls(mean, scatter / (count - 1), count)

    def save(self, path: Path) -> None:
        """Save `mu` and `sigma`, as clean-fid and the published evaluators do, and the count."""
        arrays = {"mu": self.mean.cpu().numpy(), "sigma": self.covariance.cpu().numpy()}
        if self.count is not None:
            arrays["count"] = np.array(self.count)
        np.savez(path, allow_pickle=False, **arrays)

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Load statistics that were saved here or by clean-fid."""
        expected = "statistics (an .npz file with the arrays mu and sigma)"
        with reading(path, expected, _AGAIN), np.load(path) as file:
            mean, covariance = file["mu"].astype(float), file["sigma"].astype(float)
            count = int(file["count"]) if "count" in file else None
        if mean.ndim != 1 or covariance.shape != 2 * mean.shape:
            raise OcmError(
                f"{path}: expected mu of shape (d,) and sigma of shape (d, d), found {mean.shape}"
                f" and {covariance.shape}; {_AGAIN}"
            )
        return cls(torch.from_numpy(mean), torch.from_numpy(covariance), count)

    @cached_property
    def cholesky(self) -> Matrix | None:
        """None where S is singular."""
        factor, failed = torch.linalg.cholesky_ex(self.covariance)
        return None if bool(failed) else factor

    @cached_property
    def factor(self) -> Matrix:
        """F with F Fᵀ = S: Cholesky's, or from the eigenvectors where there is none."""
        if self.cholesky is not None:
            return self.cholesky
        values, vectors = torch.linalg.eigh(self.covariance)
        smallest = len(values) * _EPSILON * values[-1]  # below it all is rounding
        factor: Matrix = vectors * torch.where(values > smallest, values, 0.0).sqrt()
        return factor

    def seen_from(self, other: Statistics) -> Matrix:
        """Fᵀ S F with the other's factor; of a symmetric matrix, the lower half is enough."""
        if other.cholesky is None or not self.covariance.is_cpu:
            return other.factor.T @ self.covariance @ other.factor
        from scipy.linalg import lapack

        matrices = self.covariance.numpy(), other.cholesky.numpy()
        product, failed = lapack.dsygst(*matrices, itype=2, lower=1)
        assert not failed, "LAPACK's dsygst was called in a wrong way"
        return torch.from_numpy(product)


def _gram(rows: Points) -> Matrix:
    """XᵀX. On a CPU NumPy sees that it is symmetric and computes one half; torch computes both."""
    if not rows.is_cpu:
        return rows.T @ rows
    array = rows.numpy()
    return torch.from_numpy(array.T @ array)


def frechet_distance(*, real: Statistics, generated: Statistics | Points) -> float:
    """The distance from statistics to statistics, or to features.

    At most as many features as dimensions make a singular covariance, which is never formed: the
    centred features are its factor, at O(n²d) and without loss of digits.
    """
    if isinstance(generated, Statistics):
        mean, covariance_trace = generated.mean, generated.covariance.trace()
        check_same_space(len(real.mean), len(mean))
        root_trace = _root_trace(real, generated)
    else:
        check_points(generated, "generated", 2)
        check_same_space(len(real.mean), generated.shape[1])
        if len(generated) > generated.shape[1]:
            return frechet_distance(real=real, generated=Statistics.of(generated))
        mean = generated.mean(0, dtype=torch.float64)
        factor = ((generated - mean) / sqrt(len(generated) - 1)).T
        covariance_trace = factor.square().sum()
        root_trace = torch.linalg.svdvals(real.factor.T @ factor).sum()
    shift = (real.mean - mean).square().sum()
    return float(shift + real.covariance.trace() + covariance_trace - 2 * root_trace)


def _root_trace(real: Statistics, generated: Statistics) -> Tensor:
    """tr √(S₁ S₂) = Σ σ, the singular values of F₁ᵀ F₂.

    σ² are the eigenvalues of F₁ᵀ S₂ F₁, which cost a third. They come with independent errors of
    about ε max σ², which the root makes ε max σ² / σ: harmless, unless some σ are tiny.
    """
    squares: Vector = torch.linalg.eigvalsh(generated.seen_from(real), UPLO="L")
    rounding = _EPSILON * squares[-1]
    roots = squares.clamp(min=rounding).sqrt()
    allowed = _TOLERANCE * (real.covariance.trace() + generated.covariance.trace())
    if bool(torch.linalg.vector_norm(rounding / roots) > allowed):
        roots = torch.linalg.svdvals(real.factor.T @ generated.factor)
    return roots.sum()
