"""Precise: steps of the reverse SDE whose noise is η times the forward process's."""

from typing import Annotated, ClassVar

from pydantic import Field

from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.diffusion.transition import Transition


class Precise(Ddim):
    """DDIM's step with λ² = b_s (1 - r^(η²)), r² = b_s ᾱ_t / (b_t ᾱ_s); η² = 2 is DDPM."""

    name: ClassVar[str] = "precise"
    eta: Annotated[float, Field(ge=0, le=10)] = 1.0

    def floor(self, step: Transition) -> float:
        ratio = step.b_s * step.alpha_bar_t / (step.b_t * step.alpha_bar_s)
        kept: float = ratio ** (0.5 * self.eta**2)
        return step.b_s * (1.0 - kept)
