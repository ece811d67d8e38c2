"""The Gaussian of a reverse step: its covariance, its divergence and density, and its bins.

The bins are those of the bound's last term, log p(x_0 | x_{τ_1}), for images; a density otherwise.
The published figures integrate the Gaussian over each bin with a tanh approximation of Φ, which
costs about 0.01 bits/dim against the exact integral; `cdf` says which one is meant. Its variance is
β̃_{1:2} whatever the method in the covariance papers, and the method's own in OpenAI's code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import log, pi, prod, sqrt
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ocm_core.diffusion.basis import Basis
from ocm_core.errors import OcmError
from ocm_core.schema.timesteps import DecoderVariance
from ocm_core.shapes import Batch, PerSample


def sum_dims(x: Batch) -> PerSample:
    """Sum over all dimensions but the first."""
    return x.flatten(1).sum(1)


def dimension(x: Batch) -> int:
    """Return the number of dimensions of one sample."""
    return prod(x.shape[1:])


def gaussian_kl(log_q: Tensor | float, log_p: Tensor, scaled: Tensor) -> Tensor:
    """KL(q ‖ p) by element, from the log variances; `scaled` is E_q[(x - μ_p)²] / σ_p²."""
    return 0.5 * (log_p - log_q + scaled - 1.0)


class Covariance(ABC):
    """The covariance Σ of a reverse step: all that samplers and bounds ask of it.

    One of a method without density can only be drawn with: the rest is refused.
    """

    @abstractmethod
    def scale(self, noise: Batch) -> Batch:
        """Return R ε with R Rᵀ = Σ: the symmetric root, or S U √λ Uᵀ."""

    @abstractmethod
    def limited(self, sigma: float) -> Covariance:
        """Return Σ with no standard deviation above σ."""

    def times(self, v: Batch) -> Batch:
        """Return Σ v."""
        raise _only_drawn()

    def filled(self, variance: float) -> Covariance:
        """Return Σ with this variance where it has none."""
        raise _only_drawn()

    def diagonal(self, like: Batch) -> Batch:
        """Return diag Σ in the shape of the batch."""
        raise _only_drawn()

    def divergence(self, beta_tilde: float, difference: Batch) -> PerSample:
        """KL(N(μ̃, β̃ I) ‖ N(μ, Σ)) in nats, with μ̃ - μ = `difference`."""
        raise _only_drawn()

    def log_density(self, difference: Batch) -> PerSample:
        """log N(x; μ, Σ) in nats, with x - μ = `difference`."""
        raise _only_drawn()


def _only_drawn() -> OcmError:
    return OcmError("this covariance has no diagonal and no density; it is for samples only")


@dataclass(frozen=True)
class Diagonal(Covariance):
    """Independent variances; `variance` broadcasts against the batch."""

    variance: Tensor

    def scale(self, noise: Batch) -> Batch:
        return self.variance.sqrt() * noise

    def times(self, v: Batch) -> Batch:
        return self.variance * v

    def limited(self, sigma: float) -> Diagonal:
        return Diagonal(self.variance.clamp(max=sigma**2))

    def filled(self, variance: float) -> Diagonal:
        return Diagonal(self.variance.where(self.variance > 0, variance))

    def diagonal(self, like: Batch) -> Batch:
        return self.variance.to(like).expand_as(like)

    def divergence(self, beta_tilde: float, difference: Batch) -> PerSample:
        variance = self.diagonal(difference)
        scaled = (beta_tilde + difference**2) / variance
        return sum_dims(gaussian_kl(log(beta_tilde), variance.log(), scaled))

    def log_density(self, difference: Batch) -> PerSample:
        variance = self.diagonal(difference)
        return -0.5 * sum_dims(difference**2 / variance + (2 * pi * variance).log())


@dataclass(frozen=True)
class Full(Covariance):
    """A whole matrix per sample, held as eigenvectors and eigenvalues; for small dimensions."""

    vectors: Float[Tensor, "batch d d"]
    values: Float[Tensor, "batch d"]

    def scale(self, noise: Batch) -> Batch:
        rotated = self.values.sqrt().unsqueeze(-1) * self._rotated(noise)
        return (self.vectors @ rotated).reshape_as(noise)

    def times(self, v: Batch) -> Batch:
        return (self.vectors @ (self.values.unsqueeze(-1) * self._rotated(v))).reshape_as(v)

    def limited(self, sigma: float) -> Full:
        return Full(self.vectors, self.values.clamp(max=sigma**2))

    def filled(self, variance: float) -> Full:
        return Full(self.vectors, Diagonal(self.values).filled(variance).variance)

    def diagonal(self, like: Batch) -> Batch:
        return (self.vectors**2 @ self.values.unsqueeze(-1)).reshape_as(like)

    def divergence(self, beta_tilde: float, difference: Batch) -> PerSample:
        return Diagonal(self.values).divergence(beta_tilde, self._rotated(difference).squeeze(-1))

    def log_density(self, difference: Batch) -> PerSample:
        return Diagonal(self.values).log_density(self._rotated(difference).squeeze(-1))

    def matrix(self) -> Float[Tensor, "batch d d"]:
        return (self.vectors * self.values.unsqueeze(1)) @ self.vectors.mT

    def _rotated(self, x: Batch) -> Float[Tensor, "batch d 1"]:
        """Return x in the eigenbasis, where Σ is diagonal."""
        return self.vectors.mT @ x.flatten(1).unsqueeze(-1)


def full(matrix: Float[Tensor, "batch d d"]) -> Full:
    """Return a full covariance, symmetrised after rounding."""
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    return Full(vectors, values)


@dataclass(frozen=True)
class Correlated(Covariance):
    """Σ = S U diag(λ) Uᵀ S: variances λ along the vectors of a basis, and a factor S² by pixel."""

    basis: Basis
    spectrum: Tensor  # λ, in the shape of the coefficients
    magnitude: Tensor | None = None  # S²; None: 1

    def with_diagonal(self, variance: Tensor) -> Correlated:
        """Return the covariance with S² such that diag Σ is `variance`."""
        return Correlated(self.basis, self.spectrum, variance / self._spread(self.spectrum))

    def scale(self, noise: Batch) -> Batch:
        coefficients = self.spectrum.to(noise).sqrt() * self.basis.coefficients(noise)
        return self._magnitude.sqrt() * self.basis.combine(coefficients)

    def times(self, v: Batch) -> Batch:
        root = self._magnitude.sqrt()
        coefficients = self.spectrum.to(v) * self.basis.coefficients(root * v)
        return root * self.basis.combine(coefficients)

    def limited(self, sigma: float) -> Correlated:
        variance = self._magnitude * self._spread(self.spectrum)
        return self.with_diagonal(variance.clamp(max=sigma**2))

    def filled(self, variance: float) -> Correlated:
        found = replace(self, spectrum=Diagonal(self.spectrum).filled(variance).variance)
        if self.magnitude is None:
            return found
        own = Diagonal(self.magnitude * self._spread(self.spectrum))
        return found.with_diagonal(own.filled(variance).variance)

    def diagonal(self, like: Batch) -> Batch:
        return (self._magnitude * self._spread(self.spectrum)).to(like).expand_as(like)

    def divergence(self, beta_tilde: float, difference: Batch) -> PerSample:
        squares, log_determinant = self._terms(difference)
        trace = sum_dims(self._spread(1 / self.spectrum) / self._magnitude)
        log_q = dimension(difference) * (log(beta_tilde) + 1.0)
        return 0.5 * (log_determinant - log_q + beta_tilde * trace + squares)

    def log_density(self, difference: Batch) -> PerSample:
        squares, log_determinant = self._terms(difference)
        return -0.5 * (squares + log_determinant + dimension(difference) * log(2 * pi))

    def _terms(self, difference: Batch) -> tuple[PerSample, PerSample]:
        """Return δᵀ Σ⁻¹ δ and log det Σ."""
        magnitude = self._magnitude.expand(-1, *difference.shape[1:])
        coefficients = self.basis.coefficients(difference / magnitude.sqrt())
        squares = sum_dims(coefficients**2 / self.spectrum.to(difference))
        return squares, sum_dims(magnitude.log()) + sum_dims(self.spectrum.log()).to(difference)

    @property
    def _magnitude(self) -> Tensor:
        ones = (1,) * (1 + len(self.basis.shape))
        return self.spectrum.new_ones(ones).float() if self.magnitude is None else self.magnitude

    def _spread(self, values: Tensor) -> Tensor:
        """Return the diagonal of U diag(v) Uᵀ, in the precision of the magnitude."""
        return self.basis.spread(values).to(self._magnitude)


@dataclass(frozen=True)
class Decoder:
    """Data with `levels` equally spaced values in [-1, 1], or continuous data (None)."""

    levels: int | None
    cdf: Literal["exact", "tanh"] = "exact"
    variance: DecoderVariance = "fixed"

    def log_likelihood(self, x0: Batch, mean: Batch, variance: Tensor) -> Batch:
        """Return log p(x_0) of each element, in nats."""
        if self.levels is None:
            density: Tensor = -0.5 * ((x0 - mean) ** 2 / variance + variance.log() + log(2 * pi))
            return density
        half_bin = 1.0 / (self.levels - 1)
        sigma = variance.sqrt()
        # the first and the last bin reach to ∓∞
        upper = torch.where(x0 > 1 - half_bin, torch.inf, (x0 - mean + half_bin) / sigma)
        lower = torch.where(x0 < -1 + half_bin, -torch.inf, (x0 - mean - half_bin) / sigma)
        if self.cdf == "exact":
            return _log_mass(lower, upper)
        # the published approximation, with its floor on the mass
        return torch.log((_tanh_cdf(upper) - _tanh_cdf(lower)).clamp(min=1e-12))


def _log_mass(lower: Tensor, upper: Tensor) -> Tensor:
    """log(Φ(upper) - Φ(lower)), on the side of the mean where both tails are small."""
    flipped = lower > 0
    low = torch.where(flipped, -upper, lower)
    high = torch.where(flipped, -lower, upper)
    log_low, log_high = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
    mass: Tensor = log_high + torch.log1p(-torch.exp(log_low - log_high))
    return mass


def _tanh_cdf(u: Tensor) -> Tensor:
    return 0.5 * (1.0 + torch.tanh(sqrt(2.0 / pi) * (u + 0.044715 * u**3)))


def pixel_sigma_limit(pixels: float, levels: int = 256) -> float:
    """The σ whose mean displacement σ E|ε| is `pixels` grey levels: y · (2/255) · √(π/2)."""
    return pixels * (2.0 / (levels - 1)) * sqrt(pi / 2)
