"""Σ = b_{s:t}: the largest sensible choice, exact where the data are white noise."""

from typing import ClassVar

from ocm_core.covariance.interface import CovarianceMethod, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    samplers: ClassVar[frozenset[str]] = frozenset({"ddpm"})
    fixed_variance: ClassVar[bool] = True

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        return lambda step: step.fixed(step.transition.b_st, prediction.x)
