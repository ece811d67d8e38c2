"""Σ = b_{s:t}: the largest sensible choice, exact where the data are white noise."""

from typing import ClassVar

from ocm_core.covariance.interface import CovarianceMethod, Profile, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    profile: ClassVar[Profile] = Profile(
        "the variance of the forward step",
        "Σ = 1 - ᾱₜ/ᾱₛ",
        group="Fixed",
        hue="grey",
        marker="x",
        dash="dot",
    )
    kernels: ClassVar[frozenset[str] | None] = frozenset({"ddpm"})
    fixed_variance: ClassVar[bool] = True

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        return lambda step: step.fixed(step.transition.b_st, prediction.x)
