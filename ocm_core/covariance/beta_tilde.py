"""Σ = β̃_{s:t}: the smallest sensible choice, exact where the data are one point."""

from typing import ClassVar

from ocm_core.covariance.interface import CovarianceMethod, Profile, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    profile: ClassVar[Profile] = Profile(
        "the variance of the forward step's reversal, x₀ being known",
        "Σ = β̃",
        group="Fixed",
        hue="grey",
        marker="diamond-open",
        dash="dash",
    )
    kernels: ClassVar[frozenset[str] | None] = frozenset({"ddpm"})
    fixed_variance: ClassVar[bool] = True

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        return lambda step: step.fixed(step.transition.beta_tilde, prediction.x)
