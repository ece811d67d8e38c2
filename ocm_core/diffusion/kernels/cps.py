"""CPS (coefficients-preserving sampling): steps whose noise is a fixed share of σ_s."""

from math import pi, sin
from typing import Annotated, ClassVar

from pydantic import Field

from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.transition import Transition


class Cps(Ddim):
    """DDIM's step with λ = √b_s sin(ηπ/2), used in reinforcement learning without `gain · C`."""

    name: ClassVar[str] = "cps"
    eta: Annotated[float, Field(ge=0, le=1)] = 0.7

    def floor(self, step: Transition) -> float:
        return step.b_s * sin(0.5 * pi * self.eta) ** 2
