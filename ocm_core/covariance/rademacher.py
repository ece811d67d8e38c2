"""c from M random probes at sampling time: no head, 2 M extra passes, unbiased and noisy."""

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from ocm_core.covariance.interface import CovarianceMethod, Profile, StepCovariance
from ocm_core.covariance.probes import hutchinson
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.rng.noise import Noise


class Method(CovarianceMethod):
    profile: ClassVar[Profile] = Profile(
        "random probes of the score's Jacobian, at every step",
        "c = 1 - √bₜ (v₁ ⊙ Jᵀv₁ + … + v_M ⊙ Jᵀv_M)/M",
        group="Probed while sampling",
        hue="sky",
        marker="cross",
        width=1.1,
    )
    reads_jacobian: ClassVar[bool] = True
    probes: Annotated[int, Field(ge=1)] = 1

    @property
    def sampling_probes(self) -> int:
        return self.probes

    def step_covariance(self, prediction: AnyPrediction, noise: Noise) -> StepCovariance:
        c = probed(prediction, noise, self.probes)
        return lambda step: step.through(c)


def probed(prediction: AnyPrediction, noise: Noise, count: int) -> Tensor:
    # drawn before mixing, so that both branches of guidance see the same probes
    probes = [noise.signs().to(prediction.x) for _ in range(count)]
    return prediction.combine(lambda branch: hutchinson(branch, probes))
