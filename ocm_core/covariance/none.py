"""No covariance of ours: the noise of a solver of diffusers, if it draws any, is its own."""

from typing import ClassVar

from ocm_core.covariance.interface import CovarianceMethod, Profile, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    profile: ClassVar[Profile] = Profile(
        "none: a solver of diffusers, whose noise is its own if it draws any",
        group="Fixed",
        hue="ink",
        marker="star-open",
        width=1.3,
    )
    kernels: ClassVar[frozenset[str] | None] = frozenset()

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        return lambda step: step.fixed(0.0, prediction.x)
