"""Which timesteps a K-step chain visits: ascending, without the leading 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from ocm_core.diffusion.schedule import Schedule
from ocm_core.errors import OcmError
from ocm_core.schema.chains import (
    ChainParams,
    DitChain,
    EvenChain,
    FixedChainParams,
    ListChain,
    LogSnrChain,
    OptimalChain,
    PowerChain,
    QuadraticChain,
    StridedChain,
)

Chain = tuple[int, ...]
OptimalChains = Mapping[str, Mapping[int, Chain]]  # by method, and by K


def _check(steps: int, length: int) -> None:
    if not 1 <= length <= steps:
        raise OcmError(f"a chain of K = {length} steps: expected 1 ≤ K ≤ T = {steps}")


def even(steps: int, length: int) -> Chain:
    """1, 1 + r, …, T with r = (T-1)/(K-1), rounded half to even as the published chains are."""
    _check(steps, length)
    if length == 1:
        return (steps,)
    stride = (steps - 1.0) / (length - 1.0)
    position, chain = 1.0, []
    for _ in range(length):  # accumulated, not multiplied: decides the published ties
        chain.append(round(position))
        position += stride
    return tuple(chain)


def quadratic(steps: int, length: int) -> Chain:
    """Squares of an even grid up to √(0.8 T), as DDIM has it: dense near the data, ends below T."""
    _check(steps, length)
    grid = np.linspace(0, np.sqrt(steps * 0.8), length) ** 2
    return tuple(int(t) + 1 for t in grid)


def dit(steps: int, length: int) -> Chain:
    """DiT's (and OpenAI's) respacing: an even stride over 0 … T-1, then shifted to our index."""
    _check(steps, length)
    if length == 1:
        return (1,)
    stride = (steps - 1) / (length - 1)
    position, chain = 0.0, []
    for _ in range(length):
        chain.append(round(position) + 1)
        position += stride
    return tuple(chain)


def strided(steps: int, length: int) -> Chain:
    """DDIM's linear spacing: every (T // K)-th step from 1 on; ends below T."""
    _check(steps, length)
    return tuple(range(1, steps + 1, steps // length))[:length]


def power(steps: int, length: int, exponent: float, first: float | None = None) -> Chain:
    """g^p with g even from first^(1/p) to T^(1/p), rounded; T alone where K = 1.

    A first one below 1 is a share of T. Without one, g is even from 0 on, which is left out: the
    step into 0 is as long as the others. With p = 1 these are, to within one, the timesteps of
    diffusers' solvers.
    """
    _check(steps, length)
    if first is not None and not first < steps:
        raise OcmError(f"a power chain from timestep {first}: expected one below T = {steps}")
    if length == 1:
        return (steps,)
    share = length**-exponent if first is None else first if first < 1 else first / steps
    grid = steps * np.linspace(share ** (1 / exponent), 1.0, length) ** exponent
    return tuple(round(t) for t in grid.tolist())


def log_snr(schedule: Schedule, length: int) -> Chain:
    """The timesteps nearest to an even grid of λ_t = ½ log(ᾱ_t / b_t), from λ_1 down to λ_T."""
    _check(schedule.steps, length)
    if length == 1:
        return (schedule.steps,)
    values = 0.5 * np.log(schedule.alpha_bar[1:] / schedule.b[1:])
    grid = np.linspace(values[0], values[-1], length)
    nearest = np.abs(values[:, None] - grid).argmin(axis=0) + 1
    return tuple(nearest.tolist())


def build(
    chain: ChainParams,
    schedule: Schedule,
    length: int,
    method: str = "",
    optimal: OptimalChains = MappingProxyType({}),
) -> Chain:
    """As the parameters say, for `method`; `optimal` are the chains that were found."""
    found = _timesteps(chain, schedule, length, method, optimal)
    if any(later <= earlier for earlier, later in pairwise((0, *found))):
        raise OcmError(
            f"the {chain.kind} chain of K = {length} over T = {schedule.steps} visits a timestep "
            "twice, or 0; take a smaller K or the even chain"
        )
    if found[-1] > schedule.steps:
        raise OcmError(f"a chain that ends at {found[-1]}: expected at most T = {schedule.steps}")
    return found


def _timesteps(
    chain: ChainParams, schedule: Schedule, length: int, method: str, optimal: OptimalChains
) -> Chain:
    steps = schedule.steps
    match chain:
        case EvenChain():
            return even(steps, length)
        case QuadraticChain():
            return quadratic(steps, length)
        case StridedChain():
            return strided(steps, length)
        case DitChain():
            return dit(steps, length)
        case LogSnrChain():
            return log_snr(schedule, length)
        case PowerChain():
            return power(steps, length, chain.exponent, chain.first)
        case ListChain():
            listed = {len(found): tuple(found) for found in chain.timesteps}
            return _of_length(length, listed, "listed chain")
        case OptimalChain():
            whose = chain.of or method
            return _of_length(length, optimal.get(whose, {}), f"optimal chain of method '{whose}'")


def _of_length(length: int, known: Mapping[int, Chain], what: str) -> Chain:
    if length not in known:
        lengths = ", ".join(map(str, sorted(known))) or "none"
        raise OcmError(f"no {what} has K = {length} steps; there are those of K = {lengths}")
    return known[length]


def optimal(
    costs: Float64[ndarray, "n n"], ends: Float64[ndarray, " n"], longest: int
) -> dict[int, Chain]:
    """For each K ≤ `longest`, the chain of least Σ costs[s, t] + ends[τ_K], where that is finite.

    `costs[s, t]` is the step t → s, `ends[t]` what it costs to begin at t; the chain may begin at
    any t. Dynamic programming over "the best chain of k steps from t to 0",

        best_k(t) = min_{s < t} best_{k-1}(s) + costs[s, t],

    gives the chains of all K in O(K n²).
    """
    size = len(ends)
    if costs.shape != (size, size):
        raise OcmError(f"costs must be square and as long as ends ({size}); got {costs.shape}")
    below = np.tri(size, k=-1, dtype=bool)  # [t, s]: s < t
    steps = np.where(below & ~np.isnan(costs.T), costs.T, np.inf)  # NaN: never taken
    starts = np.where(np.isnan(ends), np.inf, ends)
    best = np.full(size, np.inf)
    best[0] = 0.0
    came_from: list[ndarray] = []
    found: dict[int, Chain] = {}
    for length in range(1, longest + 1):
        totals = steps + best
        came_from.append(totals.argmin(axis=1))
        best = totals.min(axis=1)
        if np.isfinite(best + starts).any():
            found[length] = _traced(int((best + starts).argmin()), came_from)
    return found


def _traced(end: int, came_from: list[ndarray]) -> Chain:
    """From the end of a chain back to 0."""
    chain = [end]
    for previous in reversed(came_from[1:]):
        chain.append(int(previous[chain[-1]]))
    return tuple(reversed(chain))


@dataclass(frozen=True)
class StepCosts:
    """F[s, t] for every pair of a grid: what each step costs, and what it costs to begin at t."""

    timesteps: Chain  # the grid, with 0 in front
    steps: Float64[ndarray, "n n"]  # [i, j]: from timesteps[j] down to timesteps[i]
    ends: Float64[ndarray, " n"]  # KL(q(x_t|x_0) ‖ N(0, I))

    def optimal(self) -> dict[int, Chain]:
        """The best chain of each length that the grid allows."""
        found = optimal(self.steps, self.ends, len(self.timesteps) - 1)
        return {
            length: tuple(self.timesteps[i] for i in places) for length, places in found.items()
        }

    def cost(self, chain: Chain) -> float:
        """Of a chain on the grid: what `optimal` makes least."""
        place = {t: i for i, t in enumerate(self.timesteps)}
        taken = sum(self.steps[place[s], place[t]] for s, t in downward(chain))
        return float(taken + self.ends[place[chain[-1]]])


def averaged(costs: Sequence[StepCosts], weights: Sequence[float]) -> StepCosts:
    """Means over all images from those over batches of so many."""
    return StepCosts(
        costs[0].timesteps,
        np.average([one.steps for one in costs], axis=0, weights=weights),
        np.average([one.ends for one in costs], axis=0, weights=weights),
    )


def grid(chain: FixedChainParams, schedule: Schedule, points: int) -> Chain:
    """The timesteps that optimal chains are chosen from: of a chain, each once, and 1 and T."""
    found = {1, *_timesteps(chain, schedule, points, "", {}), schedule.steps}
    return tuple(sorted(found - {0}))


def downward(chain: Chain) -> Iterator[tuple[int, int]]:
    """The transitions (s, t) from the chain's end down to s = 0."""
    yield from reversed(list(zip((0, *chain[:-1]), chain, strict=True)))
