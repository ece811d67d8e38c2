"""C = 0: x_0 is taken to be known. With η = 0 this is the usual, noiseless DDIM."""

from typing import ClassVar

from ocm_core.covariance.interface import CovarianceMethod, Profile, StepCovariance
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    profile: ClassVar[Profile] = Profile(
        "none: x₀ is taken to be known",
        "c = 0",
        group="Fixed",
        hue="grey",
        marker="triangle-up-open",
        dash="dashdot",
    )
    kernels: ClassVar[frozenset[str] | None] = frozenset({"ddim"})
    fixed_variance: ClassVar[bool] = True

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        return lambda step: step.fixed(step.kernel.floor(step.transition), prediction.x)
