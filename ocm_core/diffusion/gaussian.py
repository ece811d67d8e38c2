"""The covariance of a reverse step, diagonal or full: how to draw with it and its divergence."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, prod

import torch
from jaxtyping import Float
from torch import Tensor

from ocm_core.shapes import Batch, PerSample


def sum_dims(x: Batch) -> PerSample:
    return x.flatten(1).sum(1)


def gaussian_kl(log_q: Tensor | float, log_p: Tensor, scaled: Tensor) -> Tensor:
    """KL(q ‖ p) of two Gaussians, element by element, from the logarithms of their variances.

    `scaled` is E_q[(x - μ_p)²] / σ_p².
    """
    return 0.5 * (log_p - log_q + scaled - 1.0)


@dataclass(frozen=True)
class Diagonal:
    """Independent variances; `variance` broadcasts against the batch."""

    variance: Tensor

    def scale(self, noise: Batch) -> Batch:
        return self.variance.sqrt() * noise

    def limited(self, sigma: float) -> Diagonal:
        return Diagonal(self.variance.clamp(max=sigma**2))

    def diagonal(self, like: Batch) -> Batch:
        return self.variance.to(like).expand_as(like)

    def divergence(self, beta_tilde: float, difference: Batch) -> PerSample:
        """KL(N(μ̃, β̃ I) ‖ N(μ, Σ)) in nats, with μ̃ - μ = `difference`."""
        variance = self.diagonal(difference)
        scaled = (beta_tilde + difference**2) / variance
        return sum_dims(gaussian_kl(log(beta_tilde), variance.log(), scaled))


@dataclass(frozen=True)
class Full:
    """A whole matrix per sample, held as eigenvectors and eigenvalues; for small dimensions."""

    vectors: Float[Tensor, "batch d d"]
    values: Float[Tensor, "batch d"]

    def scale(self, noise: Batch) -> Batch:
        """By the symmetric root: a matrix that is diagonal draws what `Diagonal` draws."""
        inside = self.vectors.mT @ noise.flatten(1).unsqueeze(-1)
        return (self.vectors @ (self.values.sqrt().unsqueeze(-1) * inside)).reshape_as(noise)

    def limited(self, sigma: float) -> Full:
        return Full(self.vectors, self.values.clamp(max=sigma**2))

    def diagonal(self, like: Batch) -> Batch:
        return (self.vectors**2 @ self.values.unsqueeze(-1)).reshape_as(like)

    def matrix(self) -> Float[Tensor, "batch d d"]:
        return (self.vectors * self.values.unsqueeze(1)) @ self.vectors.mT

    def divergence(self, beta_tilde: float, difference: Batch) -> PerSample:
        """The same divergence in the eigenbasis, where Σ is diagonal."""
        rotated = (self.vectors.mT @ difference.flatten(1).unsqueeze(-1)).squeeze(-1)
        return Diagonal(self.values).divergence(beta_tilde, rotated)


Covariance = Diagonal | Full


def full(matrix: Float[Tensor, "batch d d"]) -> Full:
    """From a matrix that rounding (or a network) may have left slightly unsymmetric."""
    values, vectors = torch.linalg.eigh(0.5 * (matrix + matrix.mT))
    return Full(vectors, values)


def dimension(x: Batch) -> int:
    return prod(x.shape[1:])
