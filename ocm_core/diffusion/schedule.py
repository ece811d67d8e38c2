"""Noise schedules in float64, index 0 being data and index T pure noise (docs/mathematics.md).

And the marginal q(x_t | x_0) = N(√ᾱ_t x_0, b_t I) that they define, with what follows from it at
one point: there ᾱ_t and b_t are numbers, or tensors that broadcast against the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import sqrt
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from jaxtyping import Float64
from numpy import ndarray
from torch import Tensor

from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.shapes import Batch, Times, TimeTable

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment, ScheduleParams

Factor = TypeVar("Factor", float, Tensor)


@dataclass(frozen=True, eq=False)
class Schedule:
    """`betas[t]` is the variance of q(x_t | x_{t-1}) for t = 1 … T, and `betas[0]` is 0."""

    betas: TimeTable

    def __post_init__(self) -> None:
        betas = self.betas
        if betas.ndim != 1 or len(betas) < 2 or betas[0] != 0:
            raise OcmError(f"betas must be (0, β_1, …, β_T); got shape {betas.shape}")
        if not ((betas[1:] > 0) & (betas[1:] < 1)).all():
            raise OcmError("betas must lie strictly between 0 and 1 for t ≥ 1")

    @property
    def steps(self) -> int:
        """Return T, the number of timesteps."""
        return len(self.betas) - 1

    @cached_property
    def alpha_bar(self) -> TimeTable:
        """ᾱ_t = ∏ (1 - β_i)."""
        return np.cumprod(1.0 - self.betas)

    @cached_property
    def b(self) -> TimeTable:
        """b_t = 1 - ᾱ_t without cancellation: b_t = b_{t-1} (1 - β_t) + β_t."""
        b = np.zeros_like(self.betas)
        for t in range(1, len(b)):
            b[t] = b[t - 1] * (1.0 - self.betas[t]) + self.betas[t]
        return b

    @lru_cache(maxsize=2)  # noqa: B019 - two columns at most, and schedules are few
    def skips_to(self, t: int) -> tuple[Float64[ndarray, " t"], Float64[ndarray, " t"]]:
        """ᾱ_{s:t} and b_{s:t} = Σ_{i>s} β_i ᾱ_{i:t}, for every s < t at once."""
        self.check(t)
        alpha_it = np.cumprod(1.0 - self.betas[t:0:-1])[::-1]  # over s: ᾱ_{s:t}, s = 0 … t-1
        products = np.append(alpha_it[1:], 1.0)  # over i = s+1: ᾱ_{i:t}
        b_st = np.cumsum((self.betas[1 : t + 1] * products)[::-1])[::-1]
        return alpha_it, b_st

    def beta_tilde(self, s: int, t: int) -> float:
        """β̃_{s:t} = b_{s:t} b_s / b_t."""
        return float(self.skips_to(t)[1][s] * self.b[s] / self.b[t])

    def for_range(self, data_range: float) -> Schedule:
        """The schedule on which data in [-r, r] are data in [-1, 1]: ᾱ' = r²ᾱ / (r²ᾱ + b).

        As q(x_t | x_0) of x_t / √(r²ᾱ + b); then β'_t = β_t / (r²ᾱ_t + b_t).
        """
        return self if data_range == 1.0 else Schedule(self.betas / self.spread(data_range))

    def spread(self, data_range: float) -> TimeTable:
        """r²ᾱ_t + b_t: its root times x'_t, for data in [-1, 1], is x_t for data in [-r, r]."""
        spread: TimeTable = data_range**2 * self.alpha_bar + self.b
        return spread

    def check(self, t: int, s: int = 0) -> None:
        """Raise an error unless 0 ≤ s < t ≤ T."""
        if not 0 <= s < t <= self.steps:
            raise OcmError(f"timesteps s = {s}, t = {t}: expected 0 ≤ s < t ≤ T = {self.steps}")

    def marginal(self, t: int) -> tuple[float, float]:
        """ᾱ_t and b_t."""
        return float(self.alpha_bar[t]), float(self.b[t])

    def marginal_at(self, t: Times, like: Tensor) -> tuple[Tensor, Tensor]:
        """ᾱ_t and b_t of each sample, shaped to multiply `like`."""
        return self.at(self.alpha_bar, t, like), self.at(self.b, t, like)

    def at(self, table: TimeTable, t: Times, like: Tensor) -> Tensor:
        """`table[t]` shaped to multiply `like`, rounded to its dtype only here."""
        dtype = like.dtype if like.is_floating_point() else torch.float32
        key = (t.device, id(table))
        if key not in self._held:  # a table is kept with its copy, so that no other has its id
            self._held[key] = table, torch.from_numpy(table).to(t.device)
        values = self._held[key][1][t].to(like.device)
        return values.to(dtype).view(-1, *(1,) * (like.ndim - 1))

    @cached_property
    def _held(self) -> dict[tuple[torch.device, int], tuple[TimeTable, Tensor]]:
        return {}


def linear(steps: int, first: float = 1e-4, last: float = 2e-2) -> Schedule:
    """β from `first` to `last` at T = 1000, scaled so that other T end equally noisy."""
    scale = 1000.0 / steps
    return Schedule(np.append(0.0, np.linspace(scale * first, scale * last, steps)))


def cosine(steps: int, offset: float = 0.008, largest: float = 0.999) -> Schedule:
    """ᾱ_t ∝ cos²((t/T + s) / (1 + s) · π/2), β limited to `largest`."""
    f = np.cos((np.arange(steps + 1) / steps + offset) / (1 + offset) * np.pi / 2) ** 2
    return Schedule(np.append(0.0, np.minimum(1.0 - f[1:] / f[:-1], largest)))


def of_levels(levels: TimeTable) -> Schedule:
    """The schedule of a path α x_0 + σ ε with these σ / α, from 0 on: ᾱ = 1 / (1 + (σ / α)²).

    As q(x_t | x_0) of (α x_0 + σ ε) / √(α² + σ²).
    """
    ratio = np.asarray(levels, np.float64) ** 2
    return Schedule(np.append(0.0, np.diff(ratio) / (1.0 + ratio[1:])))


def flow(steps: int, shift: float = 1.0) -> Schedule:
    """x_t = (1 - s) x_0 + s ε with s = k u / (1 + (k - 1) u), u = t / (T + 1), k the shift.

    So σ / α = s / (1 - s) = k u / (1 - u); pure noise, u = 1, stays outside.
    """
    u = np.arange(steps + 1) / (steps + 1)
    return of_levels(shift * u / (1.0 - u))


def edm(
    steps: int, sigma_min: float, sigma_max: float, sigma_data: float, rho: float | None
) -> Schedule:
    """x_t = x_0 + σ ε with σ^(1/ρ) even, or log σ without ρ; for data in units of `sigma_data`."""
    ramp = np.linspace(0.0, 1.0, steps)
    if rho is None:
        sigma = sigma_min ** (1 - ramp) * sigma_max**ramp
    else:
        sigma = ((1 - ramp) * sigma_min ** (1 / rho) + ramp * sigma_max ** (1 / rho)) ** rho
    return of_levels(np.append(0.0, sigma / sigma_data))


SCHEDULES = {"linear": linear, "cosine": cosine}


def of_experiment(experiment: Experiment) -> Schedule:
    """Return the schedule of data in [-1, 1], whatever the range of the network."""
    return of_params(experiment.schedule).for_range(experiment.network.range)


def of_params(params: ScheduleParams) -> Schedule:
    """Return the schedule of parameters; diffusers' own end before a timestep of pure noise."""
    if params.kind == "flow":
        return flow(params.steps, params.shift)
    if params.kind == "edm":
        return edm(**params.model_dump(exclude={"kind"}))
    if params.kind != "scheduler":
        return build(params.kind, params.steps)
    from diffusers.schedulers.scheduling_ddpm import DDPMScheduler

    arguments = params.model_dump(exclude={"kind", "steps"})
    made_on = torch.device("cpu")  # whatever the default: networks are counted on `meta`
    expected, remedy = "a schedule that diffusers can make", "check the scheduler's configuration"
    with reading("schedule", expected, remedy), made_on:
        steps = params.steps + params.rescale_betas_zero_snr
        made = DDPMScheduler(num_train_timesteps=steps, **arguments)
        found: Float64[ndarray, " t"] = made.betas.double().numpy()[: params.steps]
        if len(found) != params.steps:
            raise ValueError(f"{len(found)} betas for {params.steps} timesteps")
    return Schedule(np.append(0.0, found))


def build(kind: str, steps: int) -> Schedule:
    """Return the schedule of a kind with T = `steps`."""
    if kind not in SCHEDULES:
        raise OcmError(f"schedule.kind: {unknown(kind, SCHEDULES)}")
    return SCHEDULES[kind](steps)


def q_sample(x0: Batch, noise: Batch, alpha_bar: Factor, b: Factor) -> Batch:
    """x_t = √ᾱ_t x_0 + √b_t ε."""
    return _root(alpha_bar) * x0 + _root(b) * noise


def predict_x0(x: Batch, eps: Batch, alpha_bar: Factor, b: Factor) -> Batch:
    """x̂_0 = (x_t - √b_t ε̂) / √ᾱ_t."""
    return (x - _root(b) * eps) / _root(alpha_bar)


def predict_eps(x: Batch, x0: Batch, alpha_bar: Factor, b: Factor) -> Batch:
    """ε̂ = (x_t - √ᾱ_t x̂_0) / √b_t."""
    return (x - _root(alpha_bar) * x0) / _root(b)


def _root(value: Factor) -> Factor:
    return value.sqrt() if isinstance(value, Tensor) else sqrt(value)
