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

Order `matched` is order 2 for DDPM with a spectrum ρ. D adds variance to x_s that C would add
again: the difference of x̂_0(t) and x̂_0(u) has variance ρ(u) - ρ(t) along each vector of the basis,
as x̂_0 is a martingale. With a weight w on it, x_s has the variance of q(x_s) if Σ is β̃ + a² f ρ(t),
    f = 1 - (w² (ρ(u) - ρ(t)) + 2 w (ρ(u) - ρ(t) + (m / a) a' ρ(u))) / ρ(t),
m the factor of x_t in the mean of the step, a' that of x̂_0 in the mean of the step before. w is
h / 2h', but where f would be negative it is the one with f = 0.

Order `ipndm` (Liu et al., 2022; Zhang and Chen, 2023) is for DDIM: Adams and Bashforth's sum of up
to four ε̂, with the weights of even steps for any timesteps, the step into 0 included.
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from math import expm1, isinf, sqrt
from typing import get_args

from torch import Tensor

from ocm_core.covariance.interface import CovarianceMethod, ReverseStep
from ocm_core.diffusion.denoiser import AnyPrediction
from ocm_core.diffusion.kernels import Kernel
from ocm_core.diffusion.schedule import predict_eps, predict_x0
from ocm_core.errors import OcmError
from ocm_core.schema.experiment import KERNEL_OF_ORDER, Order
from ocm_core.shapes import Batch

# weights in 24ths, of the newest ε̂ first
ORDERS = "1, 2, 3, ipndm or matched"
ADAMS_BASHFORTH = (24,), (36, -12), (46, -32, 10), (55, -59, 37, -9)


class StepMean(ABC):
    """The mean of each step, asked from the noisiest one on."""

    left: Tensor | float = 1.0  # the share of C that the last mean has not added

    @abstractmethod
    def __call__(self, step: ReverseStep, prediction: AnyPrediction) -> Batch:
        """Return the mean of x_s."""


class FirstOrder(StepMean):
    """The mean of the kernel itself."""

    def __call__(self, step: ReverseStep, prediction: AnyPrediction) -> Batch:
        return step.mean(prediction)


def means_of_order(order: Order, kernel: Kernel, method: CovarianceMethod) -> StepMean:
    """Return the means of an order, for one batch of samples."""
    if order not in get_args(Order):
        raise OcmError(f"order = {order}: expected {ORDERS}")
    only = KERNEL_OF_ORDER.get(str(order), kernel.name)
    if only != kernel.name:
        raise OcmError(f"order = {order} is for {only}; for {kernel.name} use 1, 2 or 3")
    if order == "ipndm":
        return AdamsBashforth()
    if order == "matched":
        if not method.spectrum:
            raise OcmError(
                f"order = matched needs a spectrum: use {method.label}+dct, or order = 2"
            )
        return Multistep(basis=method.spectrum)
    return FirstOrder() if order == 1 else Multistep(corrects=order == 3)


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
class Multistep(StepMean):
    """Remembers the step before; corrects it, or matches the variance of x_s, where asked to."""

    corrects: bool = False
    basis: str = ""  # where the variance is matched
    _taken: TakenStep | None = None

    def __call__(self, step: ReverseStep, prediction: AnyPrediction) -> Batch:
        x, x0, h = prediction.x, step.x0(prediction), step.transition.log_snr_gain
        before = self._taken
        if before is None:
            self._taken = TakenStep(step, x, x0, x0, None, 0.0)
        else:
            slope = x0 - before.x0
            ratio = before.step.transition.log_snr_gain / h
            added, self.left = 0.0 if isinf(h) else slope / (2 * ratio), 1.0
            if self.basis and not isinf(h):
                added = self._matched(before.step, step, prediction, slope, 1 / (2 * ratio))
            extrapolated = x0 + added
            corrected = x + before.correction(x0) if self.corrects else x
            self._taken = TakenStep(step, corrected, x0, extrapolated, slope, ratio)
        return self._taken.mean(self._taken.extrapolated)

    def _matched(
        self,
        before: ReverseStep,
        step: ReverseStep,
        prediction: AnyPrediction,
        slope: Batch,
        weight: float,
    ) -> Batch:
        """Return w (x̂_0(t) - x̂_0(u)) by coefficient, and note what is left of C: f."""
        spectrum, at = prediction.denoiser.spectrum(self.basis), step.transition
        earlier, now = spectrum.at(before.transition.t), spectrum.at(at.t)
        gained = (earlier - now).clamp(min=0.0)
        of_x = sqrt(at.alpha_bar_st) * at.b_s / at.b_t
        scales = [sqrt(each.kernel.gain(each.transition)) for each in (step, before)]
        linear = 2 * (gained + of_x / scales[0] * scales[1] * earlier)
        most = 2 * now / (linear + (linear**2 + 4 * gained * now).sqrt())  # where f = 0
        weights = most.clamp(max=weight)
        self.left = (1 - (weights**2 * gained + weights * linear) / now).clamp(min=0.0)
        coefficients = spectrum.basis.coefficients(slope)
        return spectrum.basis.combine(weights.to(slope) * coefficients)


@dataclass
class AdamsBashforth(StepMean):
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
