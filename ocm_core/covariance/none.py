"""No covariance of ours: the noise of a solver of diffusers, if it draws any, is its own."""

from typing import ClassVar

from ocm_core.covariance.interface import CovarianceMethod, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    samplers: ClassVar[frozenset[str]] = frozenset({"diffusers"})

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        return lambda step: step.fixed(0.0, prediction.x)
