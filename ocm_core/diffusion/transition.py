"""The scalars of one reverse step t → s, from which kernels are built."""

from dataclasses import dataclass
from math import inf, log

from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.timesteps import Timesteps, downward


@dataclass(frozen=True)
class Transition:
    """Everything that a step t → s needs of the schedule, in float64.

    β̃_{0:t} is 0: where a logarithm of it is wanted, the first positive one stands in, that of the
    full schedule (β̃_{1:2}) or that of the visited timesteps.
    """

    s: int
    t: int
    alpha_bar_s: float
    b_s: float
    alpha_bar_t: float
    b_t: float
    alpha_bar_st: float
    b_st: float
    beta_tilde_schedule_start: float
    beta_tilde_timesteps_start: float

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
        """b_t / ᾱ_t, which turns c into C."""
        return self.b_t / self.alpha_bar_t


def transitions(schedule: Schedule, timesteps: Timesteps) -> list[Transition]:
    """Return the steps between timesteps, from the noisiest down to data."""
    return [transition(schedule, s, t, timesteps) for s, t in downward(timesteps)]


def transition(schedule: Schedule, s: int, t: int, timesteps: Timesteps = (1, 2)) -> Transition:
    """Return the step t → s of `timesteps`, whose first two matter at s = 0 alone."""
    schedule.check(t, s)
    alpha_bar_st, b_st = schedule.skips_to(t)
    skip = float(alpha_bar_st[s]), float(b_st[s])
    full_start = schedule.beta_tilde(1, 2)
    timesteps_start = schedule.beta_tilde(*timesteps[:2]) if len(timesteps) > 1 else full_start
    marginals = *schedule.marginal(s), *schedule.marginal(t)
    return Transition(s, t, *marginals, *skip, full_start, timesteps_start)
