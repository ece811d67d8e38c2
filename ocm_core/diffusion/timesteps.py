"""Which timesteps are visited with a given number of steps K: ascending, without the leading 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise, repeat
from types import MappingProxyType
from typing import get_args

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from ocm_core.diffusion.schedule import Schedule
from ocm_core.errors import OcmError
from ocm_core.schema import timesteps as rules

Timesteps = tuple[int, ...]
TimestepsByMethod = Mapping[str, Mapping[int, Timesteps]]  # method (/decoder) → K → timesteps


def even(steps: int, nfe: int) -> Timesteps:
    """Return 1, 1 + r, …, T with r = (T-1)/(K-1), rounded half to even as published."""
    return _strides(1.0, steps, nfe) if nfe != 1 else (steps,)


def quadratic(steps: int, nfe: int) -> Timesteps:
    """Return DDIM's squares of an even grid up to √(0.8 T): dense near the data, ending below T."""
    grid = np.linspace(0, np.sqrt(steps * 0.8), nfe) ** 2
    return tuple(int(t) + 1 for t in grid)


def dit(steps: int, nfe: int) -> Timesteps:
    """Return DiT's (and OpenAI's) respacing: an even stride over 0 … T-1, shifted by 1."""
    return tuple(t + 1 for t in _strides(0.0, steps, nfe)) if nfe != 1 else (1,)


def power(steps: int, nfe: int, exponent: float, first: float | None = None) -> Timesteps:
    """Return g^p with g even from first^(1/p) to T^(1/p), rounded; T alone where K = 1.

    A `first` below 1 is a share of T. Without it, g is even from 0, which is left out: with p = 1
    these are, to within one, the timesteps of diffusers' solvers.
    """
    if first is not None and not first < steps:
        raise OcmError(f"power timesteps from {first}: expected a timestep below T = {steps}")
    if nfe == 1:
        return (steps,)
    share = nfe**-exponent if first is None else first if first < 1 else first / steps
    grid = steps * np.linspace(share ** (1 / exponent), 1.0, nfe) ** exponent
    return tuple(round(t) for t in grid.tolist())


def build(
    params: rules.TimestepsParams,
    schedule: Schedule,
    nfe: int,
    method: str = "",
    optimal: TimestepsByMethod = MappingProxyType({}),
) -> Timesteps:
    """Return the `nfe` timesteps of a rule; `optimal` are those that were computed for `method`."""
    timesteps = _of_kind(params, schedule.steps, nfe, method, optimal)
    if any(later <= earlier for earlier, later in pairwise((0, *timesteps))):
        raise OcmError(
            f"{params.kind} timesteps: {nfe} of T = {schedule.steps} visit one twice, or 0; take "
            "fewer steps or the even timesteps"
        )
    if timesteps[-1] > schedule.steps:
        raise OcmError(f"timesteps end at {timesteps[-1]}: expected at most T = {schedule.steps}")
    return timesteps


def _strides(start: float, steps: int, nfe: int) -> Timesteps:
    """Return rounded places; they are accumulated, as decides the published ties."""
    _check(steps, nfe)
    stride = (steps - 1) / (nfe - 1)
    return tuple(map(round, accumulate(repeat(stride, nfe - 1), initial=start)))


def _check(steps: int, nfe: int) -> None:
    if not 1 <= nfe <= steps:
        raise OcmError(f"timesteps of K = {nfe} steps: expected 1 ≤ K ≤ T = {steps}")


def _of_kind(
    params: rules.TimestepsParams, steps: int, nfe: int, method: str, optimal: TimestepsByMethod
) -> Timesteps:
    _check(steps, nfe)
    match params:
        case rules.NamedTimesteps():
            return {"even": even, "quadratic": quadratic, "dit": dit}[params.kind](steps, nfe)
        case rules.PowerTimesteps():
            return power(steps, nfe, params.exponent, params.first)
        case rules.ListedTimesteps():
            by_nfe, name = {len(v): tuple(v) for v in params.values}, "listed timesteps"
        case rules.OptimalTimesteps():
            source = params.source(method)
            by_nfe, name = dict(optimal.get(source, {})), f"optimal timesteps of '{source}'"
    if nfe not in by_nfe:
        available = ", ".join(map(str, sorted(by_nfe))) or "none"
        raise OcmError(f"{name}: none with {nfe} steps; available numbers of steps: {available}")
    return by_nfe[nfe]


def optimal(
    costs: Float64[ndarray, "n n"], ends: Float64[ndarray, " n"], largest: int
) -> dict[int, Timesteps]:
    """Return, for each K ≤ `largest`, the timesteps of least Σ costs[s, t] + ends[τ_K].

    `costs[s, t]` is the cost of the step t → s, and `ends[t]` that of beginning at t, which may be
    any t. Dynamic programming over "the least cost of k steps from t to 0",

        best_k(t) = min_{s < t} best_{k-1}(s) + costs[s, t],

    gives the timesteps of all K in O(K n²).
    """
    size = len(ends)
    below = np.tri(size, k=-1, dtype=bool)  # [t, s]: s < t
    steps = np.where(below & ~np.isnan(costs.T), costs.T, np.inf)  # NaN: never taken
    starts = np.where(np.isnan(ends), np.inf, ends)
    best = np.full(size, np.inf)
    best[0] = 0.0
    came_from: list[ndarray] = []
    by_nfe: dict[int, Timesteps] = {}
    for nfe in range(1, largest + 1):
        totals = steps + best
        came_from.append(totals.argmin(axis=1))
        best = totals.min(axis=1)
        if np.isfinite(best + starts).any():
            timesteps = [int((best + starts).argmin())]
            for previous in reversed(came_from[1:]):
                timesteps.append(int(previous[timesteps[-1]]))
            by_nfe[nfe] = tuple(reversed(timesteps))
    return by_nfe


@dataclass(frozen=True)
class StepCosts:
    """F[s, t] for every pair of a grid: the cost of each step, and of beginning at t."""

    timesteps: Timesteps  # the grid, with 0 in front
    steps: Float64[ndarray, "n n"]  # [i, j]: from timesteps[j] down to timesteps[i]
    ends: Float64[ndarray, " n"]  # KL(q(x_t|x_0) ‖ N(0, I))
    decoders: Mapping[str, Float64[ndarray, " n"]] = field(default_factory=dict)  # steps[0] by each

    def decoded(self, variance: str) -> StepCosts:
        """Return the costs with a decoder of this variance, which row s = 0 alone depends on."""
        return replace(self, steps=np.vstack([self.decoders[variance], self.steps[1:]]))

    def optimal(self) -> dict[int, Timesteps]:
        """Return the best timesteps for each number of steps that the grid allows."""
        by_nfe = optimal(self.steps, self.ends, len(self.timesteps) - 1)
        return {nfe: tuple(self.timesteps[i] for i in places) for nfe, places in by_nfe.items()}

    def cost(self, timesteps: Timesteps) -> float:
        """Return the cost, which `optimal` minimises, of timesteps on the grid."""
        place = {t: i for i, t in enumerate(self.timesteps)}
        taken = sum(self.steps[place[s], place[t]] for s, t in downward(timesteps))
        return float(taken + self.ends[place[timesteps[-1]]])


def step_tables(costs: Mapping[str, StepCosts]) -> dict[str, ndarray]:
    """Return arrays by name, to be saved; methods share the grid and the prior's terms."""
    first = next(iter(costs.values()))
    shared = {"timesteps": np.array(first.timesteps), "ends": first.ends}
    steps = {f"steps.{label}": table.steps for label, table in costs.items()}
    rows = {(v, k): row for k, table in costs.items() for v, row in table.decoders.items()}
    return shared | steps | {f"{v}.{label}": row for (v, label), row in rows.items()}


def step_costs_of(tables: Mapping[str, ndarray]) -> dict[str, StepCosts]:
    """Return the costs that `step_tables` made arrays of."""
    times, ends = tuple(tables["timesteps"].tolist()), np.array(tables["ends"])
    kinds: dict[str, dict[str, ndarray]] = {}
    for name, table in tables.items():
        kind, _, label = name.partition(".")
        kinds.setdefault(kind, {})[label] = np.array(table)
    variances = [v for v in get_args(rules.DecoderVariance) if v in kinds]
    return {
        label: StepCosts(times, steps, ends, {v: kinds[v][label] for v in variances})
        for label, steps in kinds["steps"].items()
    }


def averaged(costs: Sequence[StepCosts], weights: Sequence[float]) -> StepCosts:
    """Return the mean over all images, given the means over batches of `weights` images."""

    def mean(tables: Iterable[ndarray]) -> ndarray:
        return np.average([*tables], axis=0, weights=weights)

    return StepCosts(
        costs[0].timesteps,
        mean(one.steps for one in costs),
        mean(one.ends for one in costs),
        {name: mean(one.decoders[name] for one in costs) for name in costs[0].decoders},
    )


def grid(params: rules.FixedTimesteps, schedule: Schedule, points: int) -> Timesteps:
    """Return the timesteps that optimal ones are chosen from: those of a rule, and 1 and T."""
    timesteps = {1, *_of_kind(params, schedule.steps, points, "", {}), schedule.steps}
    return tuple(sorted(timesteps - {0}))


def downward(timesteps: Timesteps) -> Iterator[tuple[int, int]]:
    """Yield the transitions (s, t) from the largest timestep down to s = 0."""
    yield from reversed(list(zip((0, *timesteps[:-1]), timesteps, strict=True)))
