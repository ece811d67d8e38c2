"""Noise with the whole covariance, from a few products with the Jacobian: √Σ z without Σ.

Lanczos' method (arXiv 2605.22723): V is an orthonormal basis of z, c z, c² z, …, c = I - √b_t J,
and T = Vᵀ c V. Then f(c) z ≈ ‖z‖ V f(T) e_1 for any function f of eigenvalues; here f is the root
of a step's variance. T is made symmetric as `exact_full` does with c: with as many products as
dimensions the two are the same. With fewer, ‖√Σ z‖² = zᵀ Σ z still holds exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from ocm_core.covariance.interface import (
    CovarianceMethod,
    Look,
    Profile,
    ReverseStep,
    StepCovariance,
    c_times,
)
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.gaussian import Covariance, dimension
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch

Operator = Callable[[Batch], Batch]


class Method(CovarianceMethod):
    profile = Profile(
        "noise that a few products with the score's Jacobian correlate, at every step",
        "√Σ z ≈ ‖z‖ V √Σ(T) e₁, T = Vᵀ(I - √bₜ J)V",
        line=Look("sky", "diamond", "dash", 1.3),
        group="Probed while sampling",
    )
    is_diagonal = has_density = False
    products: Annotated[int, Field(ge=1)] = 3

    def jacobian_products(self, dimension: int) -> int:
        return min(self.products, dimension)

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        count = self.jacobian_products(dimension(prediction.x))

        def covariance(step: ReverseStep) -> Krylov:
            # the limit on C is one of pixels: a mean of n of them has an eigenvalue of up to n
            step = replace(step, clip=replace(step.clip, c_max=None))
            return Krylov(partial(c_times, prediction), count, step.variance)

        return covariance


@dataclass(frozen=True)
class Krylov(Covariance):
    """A function of an operator, which is known by its products with vectors."""

    operator: Operator
    products: int
    variance: Callable[[Tensor], Tensor]  # of x_s, from eigenvalues of the operator

    def scale(self, noise: Batch) -> Batch:
        basis, projected = projection(self.operator, noise, self.products)
        values, vectors = torch.linalg.eigh(projected)
        first = vectors[:, 0]  # Qᵀ e_1
        place = vectors @ (self.variance(values).sqrt() * first).unsqueeze(-1)
        length = torch.linalg.vector_norm(noise.flatten(1), dim=1).view(-1, 1, 1)
        drawn: Tensor = length * (basis @ place)
        return drawn.view_as(noise)

    def limited(self, sigma: float) -> Krylov:
        return replace(self, variance=lambda values: self.variance(values).clamp(max=sigma**2))


def projection(operator: Operator, start: Batch, count: int) -> tuple[Tensor, Tensor]:
    """Return V (batch, dimension, count), whose first column is along `start`, and Vᵀ c V."""
    v = start.flatten(1).unsqueeze(-1)
    basis, images = v[..., :0], v[..., :0]
    for _ in range(count):
        length = torch.linalg.vector_norm(v, dim=1, keepdim=True)
        for _ in range(2):  # once leaves rounding errors that the next products would multiply
            v = v - basis @ (basis.mT @ v)
        left = torch.linalg.vector_norm(v, dim=1, keepdim=True)
        # where nothing but rounding is left, the space is complete: zeros add nothing to T
        v = torch.where(left > 10 * torch.finfo(v.dtype).eps * length, v / left, 0.0)
        basis = torch.cat([basis, v], dim=2)
        v = operator(v.view_as(start)).flatten(1).unsqueeze(-1)
        images = torch.cat([images, v], dim=2)
    projected = basis.mT @ images
    return basis, 0.5 * (projected + projected.mT)
