"""The mean of a step from one prediction (order 1), from two (order 2), or corrected (order 3).

With λ = ½ log(ᾱ / b), h = λ_s - λ_t of the step t → s and h' = λ_t - λ_u of the step before it, x̂_0
is extrapolated in λ to the middle of the step:
    D = x̂_0(t) + (h / 2h') (x̂_0(t) - x̂_0(u)).
DDIM's step with D is DPM-Solver++ 2M, DDPM's is SDE-DPM-Solver++ 2M (Lu et al., 2022); the variance
stays what the covariance method says. As there, the first step is of first order, and so is the one
into 0, whose h is infinite; x̂_0 is clamped before it is extrapolated and D is not, and ε̂ is always
derived anew from D.

Order 3 takes these steps and corrects each when x̂_0(s) is known, without another evaluation (Zhao
et al., 2023): x_s moves to where the step with D' would have ended, D' the mean of the quadratic
through x̂_0 at u, t and s, weighted as the ODE has it. With `delta` and DDIM it is UniPC.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, isinf
from typing import Literal

from ocm_core.covariance.interface import ReverseStep
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.schedule import predict_eps
from ocm_core.errors import OcmError
from ocm_core.shapes import Batch

Order = Literal[1, 2, 3]
StepMean = Callable[[ReverseStep, AnyPrediction], Batch]


def means_of_order(order: Order) -> StepMean:
    """Return a function that gives the mean of each step, asked from the noisiest one on."""
    if order not in (1, 2, 3):
        raise OcmError(f"order = {order}: expected 1, 2 or 3")
    return ReverseStep.mean if order == 1 else Multistep(corrects=order == 3)


@dataclass(frozen=True)
class TakenStep:
    """A step from x with x̂_0, which was extrapolated to D."""

    step: ReverseStep
    x: Batch
    x0: Batch
    extrapolated: Batch
    slope: Batch | None
    ratio: float  # h' / h

    def mean(self, x0: Batch) -> Batch:
        """Return the mean of the step with another x̂_0."""
        step = self.step.transition
        eps = predict_eps(self.x, x0, step.alpha_bar_t, step.b_t)
        return self.step.kernel.mean(step, self.x, x0, eps)

    def correction(self, x0: Batch) -> Batch:
        """Return how far x̂_0 at the end of the step moves that end."""
        return self.mean(self._interpolated(x0 - self.x0)) - self.mean(self.extrapolated)

    def _interpolated(self, change: Batch) -> Batch:
        """D' = x̂_0 + a E[θ] + b E[θ²], where x̂_0 + aθ + bθ² is the quadratic, θ = 0 at t, 1 at s.

        The weight of θ is e^{hθ} over the step, in λ. After a first step: half of the change.
        """
        if self.slope is None:
            return self.x0 + 0.5 * change
        h, r = self.step.transition.log_snr_gain, self.ratio
        whole = -1 / expm1(-h)
        first = whole - 1 / h
        second = whole - 2 * first / h
        curvature = (change - self.slope / r) / (1 + r)
        return self.x0 + first * (change - curvature) + second * curvature


@dataclass
class Multistep:
    """Remembers the step before, and corrects it where that is asked for."""

    corrects: bool = False
    _taken: TakenStep | None = None

    def __call__(self, step: ReverseStep, prediction: AnyPrediction) -> Batch:
        x, x0, h = prediction.x, step.x0(prediction), step.transition.log_snr_gain
        before = self._taken
        if before is None:
            self._taken = TakenStep(step, x, x0, x0, None, 0.0)
        else:
            slope = x0 - before.x0
            ratio = before.step.transition.log_snr_gain / h
            extrapolated = x0 if isinf(h) else x0 + slope / (2 * ratio)
            corrected = x + before.correction(x0) if self.corrects else x
            self._taken = TakenStep(step, corrected, x0, extrapolated, slope, ratio)
        return self._taken.mean(self._taken.extrapolated)
