"""The mean of a step from one prediction (order 1), from several, or corrected (order 3).

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

Order `ipndm` (Liu et al., 2022; Zhang and Chen, 2023) is for DDIM: Adams and Bashforth's sum of up
to four ε̂, with the weights of even steps for any timesteps, the step into 0 included.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import expm1, isinf
from typing import get_args

from ocm_core.covariance.interface import ReverseStep
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.schedule import predict_eps, predict_x0
from ocm_core.errors import OcmError
from ocm_core.schema.experiment import Order
from ocm_core.shapes import Batch

StepMean = Callable[[ReverseStep, AnyPrediction], Batch]
# weights in 24ths, of the newest ε̂ first
ADAMS_BASHFORTH = (24,), (36, -12), (46, -32, 10), (55, -59, 37, -9)


def means_of_order(order: Order, kernel: Kernel) -> StepMean:
    """Return a function that gives the mean of each step, asked from the noisiest one on."""
    if order not in get_args(Order):
        raise OcmError(f"order = {order}: expected 1, 2, 3 or ipndm")
    if order == "ipndm" and kernel.name != "ddim":
        raise OcmError(f"order = ipndm is for ddim; for {kernel.name} use 1, 2 or 3")
    if order == "ipndm":
        return AdamsBashforth()
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


@dataclass
class AdamsBashforth:
    """Remembers the last predictions of ε̂, as derived from x̂_0 within its limits."""

    _eps: deque[Batch] = field(default_factory=lambda: deque(maxlen=len(ADAMS_BASHFORTH)))

    def __call__(self, step: ReverseStep, prediction: AnyPrediction) -> Batch:
        x, at = prediction.x, step.transition
        marginal = at.alpha_bar_t, at.b_t
        self._eps.appendleft(predict_eps(x, step.x0(prediction), *marginal))
        weights = ADAMS_BASHFORTH[len(self._eps) - 1]
        terms = [weight / 24 * eps for weight, eps in zip(weights, self._eps, strict=True)]
        eps = sum(terms[1:], terms[0])
        return step.kernel.mean(at, x, predict_x0(x, eps, *marginal), eps)
