"""c from M random probes at sampling time: no head, 2 M extra passes, unbiased and noisy."""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from ocm_core.covariance.interface import (
    CovarianceMethod,
    Look,
    Profile,
    StepCovariance,
    c_from_jacobian,
)
from ocm_core.diffusion.denoiser import AnyPrediction, Prediction
from ocm_core.diffusion.gaussian import Diagonal, dimension
from ocm_core.rng.noise import Noise
from ocm_core.shapes import Batch


class Method(CovarianceMethod):
    profile = Profile(
        "random probes of the score's Jacobian, at every step",
        "c = 1 - √bₜ (v₁ ⊙ Jᵀv₁ + … + v_M ⊙ Jᵀv_M)/M",
        line=Look("sky", "cross", width=1.1),
        group="Probed while sampling",
    )
    probes: Annotated[int, Field(ge=1)] = 1

    def jacobian_products(self, dimension: int) -> int:
        return min(self.probes, dimension)

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        c = probed(prediction, noise, self.probes)
        return lambda step: Diagonal(step.variance(c))


def probed(prediction: AnyPrediction, noise: Noise, count: int) -> Tensor:
    """Return c from so many probes; both branches of guidance see the same ones."""
    probes = [noise.signs().to(prediction.x) for _ in range(count)]
    return prediction.combine(lambda branch: hutchinson(branch, probes))


def hutchinson(prediction: Prediction, probes: Sequence[Batch]) -> Batch:
    """c = 1 - √b_t · mean_m v_m ⊙ (Jᵀ v_m), unbiased for 1 - √b_t diag J when v is ±1."""
    if len(probes) > dimension(prediction.x):  # cheaper to form J once; the numbers are the same
        stacked = torch.stack([v.flatten(1) for v in probes], dim=1)
        products = (stacked * (stacked @ prediction.jacobian())).mean(1).view_as(prediction.x)
    else:
        products = sum((v * prediction.vjp(v) for v in probes), torch.zeros_like(prediction.x))
        products = products / len(probes)
    return c_from_jacobian(prediction, products)
