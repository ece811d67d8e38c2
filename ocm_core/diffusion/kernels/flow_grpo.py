"""Flow-GRPO: Euler-Maruyama steps of the flow (1 - s) x_0 + s ε, seen at unit variance."""

from math import sqrt
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field

from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.transition import Transition
from ocm_core.shapes import Batch

PURE_NOISE = 0.99  # from this s on the noise is that of the step's end, as theirs at s = 1


class Coefficients(NamedTuple):
    """Of x̂_0 and ε̂ in the mean, and the variance, all at unit variance."""

    x0: float
    eps: float
    variance: float


class FlowGrpo(Kernel):
    """Mean (1 - u) x̂_0 + (u - Δ g² / 2s) ε̂, variance Δ g² + gain · C of the step s → u = s - Δ.

    g = a √(s / (1 - s)); used in reinforcement learning without `gain · C`. The step into data
    shows x̂_0.
    """

    name: ClassVar[str] = "flow_grpo"
    a: Annotated[float, Field(gt=0, le=10)] = 0.7

    def mean(self, step: Transition, x: Batch, x0: Batch, eps: Batch) -> Batch:
        of = self._coefficients(step)
        return of.x0 * x0 + of.eps * eps

    def floor(self, step: Transition) -> float:
        return self._coefficients(step).variance

    def gain(self, step: Transition) -> float:
        of = self._coefficients(step)
        return (of.x0 - of.eps * sqrt(step.alpha_bar_t / step.b_t)) ** 2

    def _coefficients(self, step: Transition) -> Coefficients:
        if step.s == 0:
            return Coefficients(1.0, 0.0, 0.0)
        begin = sqrt(step.b_t) / (sqrt(step.alpha_bar_t) + sqrt(step.b_t))
        norm = sqrt(step.alpha_bar_s) + sqrt(step.b_s)  # 1 / √((1 - u)² + u²)
        end = sqrt(step.b_s) / norm
        variance = self.a**2 * begin / (1 - (end if begin > PURE_NOISE else begin)) * (begin - end)
        return Coefficients(
            norm * (1 - end), norm * (end - 0.5 * variance / begin), norm**2 * variance
        )
