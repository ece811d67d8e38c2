"""The whole matrix c = I - √b_t J: D extra backward passes and a D × D eigendecomposition."""

import torch
from torch import Tensor

from ocm_core.covariance.interface import CovarianceMethod, Look, Profile, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction, Prediction
from ocm_core.diffusion.gaussian import Full, full
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    profile = Profile(
        "the whole Jacobian of the score, at every step",
        "c = I - √bₜ J",
        line=Look("ink", "square-open", "dash", 1.3),
        group="Exact Jacobian",
    )
    is_diagonal = False

    def jacobian_products(self, dimension: int) -> int:
        return dimension

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        c = full(prediction.combine(matrix))
        return lambda step: Full(c.vectors, step.variance(c.values))  # C's eigenvectors are Σ's


def matrix(prediction: Prediction) -> Tensor:
    """I - √b_t J."""
    product = prediction.marginal[1].view(-1, 1, 1).sqrt() * prediction.jacobian()
    return torch.eye(product.shape[1], dtype=product.dtype, device=product.device) - product
