"""DDIM: steps that keep the marginals of the forward process, with η times its noise."""

from math import sqrt
from typing import Annotated, ClassVar

from pydantic import Field

from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.transition import Transition
from ocm_core.shapes import Batch


class Ddim(Kernel):
    """Mean √ᾱ_s x̂_0 + √(b_s - λ²) ε̂, variance λ² + γ² C, with λ² = η² β̃_{s:t}.

    γ = √ᾱ_s - √((b_s - λ²) ᾱ_t / b_t). With a clamped x̂_0, ε̂ stays raw, as in the covariance
    papers.
    """

    name: ClassVar[str] = "ddim"
    eta: Annotated[float, Field(ge=0, le=1)] = 0.0

    def mean(self, step: Transition, x: Batch, x0: Batch, eps: Batch) -> Batch:
        return sqrt(step.alpha_bar_s) * x0 + sqrt(step.b_s - self.floor(step)) * eps

    def floor(self, step: Transition) -> float:
        return self.eta**2 * step.beta_tilde

    def gain(self, step: Transition) -> float:
        remaining = (step.b_s - self.floor(step)) * step.alpha_bar_t / step.b_t
        return (sqrt(step.alpha_bar_s) - sqrt(remaining)) ** 2
