"""The scalars of one reverse step t → s, and the two kernels built from them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, sqrt
from typing import ClassVar, Protocol

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.chains import Chain, downward
from ocm_core.diffusion.schedule import Schedule
from ocm_core.shapes import Batch


@dataclass(frozen=True)
class Transition:
    """Everything that a step t → s needs of the schedule, in float64.

    β̃_{0:t} is 0: where a logarithm of it is wanted, the first positive one stands in, that of the
    full schedule (β̃_{1:2}) or that of the chain.
    """

    s: int
    t: int
    alpha_bar_s: float
    alpha_bar_t: float
    b_s: float
    b_t: float
    alpha_bar_st: float
    b_st: float
    beta_tilde_schedule_start: float
    beta_tilde_chain_start: float

    @property
    def beta_tilde(self) -> float:
        """β̃_{s:t} = b_{s:t} b_s / b_t, the variance of q(x_s | x_t, x_0)."""
        return self.b_st * self.b_s / self.b_t

    @property
    def log_snr_gain(self) -> float:
        """h = λ_s - λ_t with λ = ½ log(ᾱ / b), the log-SNR; infinite where data are reached."""
        if self.s == 0:
            return inf
        return 0.5 * log(self.alpha_bar_s * self.b_t / (self.b_s * self.alpha_bar_t))

    @property
    def posterior_scale(self) -> float:
        return schedules.posterior_scale(self.alpha_bar_t, self.b_t)

    def predict_x0(self, x: Batch, eps: Batch) -> Batch:
        return schedules.predict_x0(x, eps, self.alpha_bar_t, self.b_t)

    def predict_eps(self, x: Batch, x0: Batch) -> Batch:
        return schedules.predict_eps(x, x0, self.alpha_bar_t, self.b_t)


def transitions(schedule: Schedule, chain: Chain) -> list[Transition]:
    """The steps of a chain, from its noisiest point down to data."""
    return [transition(schedule, s, t, chain) for s, t in downward(chain)]


def transition(schedule: Schedule, s: int, t: int, chain: Chain = (1, 2)) -> Transition:
    """The step t → s; `chain` is the one it belongs to (its start matters at s = 0 alone)."""
    schedule.check(t, s)
    alpha_bar_st, b_st = schedule.skips_to(t)
    full_start = schedule.beta_tilde(1, 2)
    chain_start = schedule.beta_tilde(*chain[:2]) if len(chain) > 1 else full_start
    return Transition(
        s=s,
        t=t,
        alpha_bar_s=float(schedule.alpha_bar[s]),
        alpha_bar_t=float(schedule.alpha_bar[t]),
        b_s=float(schedule.b[s]),
        b_t=float(schedule.b[t]),
        alpha_bar_st=float(alpha_bar_st[s]),
        b_st=float(b_st[s]),
        beta_tilde_schedule_start=full_start,
        beta_tilde_chain_start=chain_start,
    )


class Kernel(Protocol):
    """A family of reverse steps: Gaussian with this mean and the variance `floor + gain · C`."""

    name: ClassVar[str]

    def mean(self, step: Transition, x: Batch, x0: Batch, eps: Batch) -> Batch: ...

    def floor(self, step: Transition) -> float: ...

    def gain(self, step: Transition) -> float: ...


@dataclass(frozen=True)
class Ddpm:
    """Mean a x̂_0 + √ᾱ_{s:t} (b_s / b_t) x_t, variance β̃_{s:t} + a² C, a = √ᾱ_s b_{s:t} / b_t."""

    name: ClassVar[str] = "ddpm"

    def mean(self, step: Transition, x: Batch, x0: Batch, eps: Batch) -> Batch:
        return self._a(step) * x0 + sqrt(step.alpha_bar_st) * (step.b_s / step.b_t) * x

    def floor(self, step: Transition) -> float:
        return step.beta_tilde

    def gain(self, step: Transition) -> float:
        return self._a(step) ** 2

    def _a(self, step: Transition) -> float:
        return sqrt(step.alpha_bar_s) * step.b_st / step.b_t


@dataclass(frozen=True)
class Ddim:
    """Mean √ᾱ_s x̂_0 + √(b_s - λ²) ε̂, variance λ² + γ² C, with λ² = η² β̃_{s:t}.

    γ = √ᾱ_s - √((b_s - λ²) ᾱ_t / b_t). With a clamped x̂_0 the covariance papers keep the raw ε̂;
    OpenAI and DiT derive it anew from the clamped x̂_0 (`rederive_eps`).
    """

    name: ClassVar[str] = "ddim"
    eta: float = 0.0
    rederive_eps: bool = False

    def mean(self, step: Transition, x: Batch, x0: Batch, eps: Batch) -> Batch:
        direction = step.predict_eps(x, x0) if self.rederive_eps else eps
        return sqrt(step.alpha_bar_s) * x0 + sqrt(step.b_s - self.floor(step)) * direction

    def floor(self, step: Transition) -> float:
        return self.eta**2 * step.beta_tilde

    def gain(self, step: Transition) -> float:
        remaining = (step.b_s - self.floor(step)) * step.alpha_bar_t / step.b_t
        return (sqrt(step.alpha_bar_s) - sqrt(remaining)) ** 2
