"""Which timesteps a K-step chain visits: ascending, without the leading 0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from ocm_core.errors import OcmError, unknown

Chain = tuple[int, ...]


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


def optimal(costs: Float64[ndarray, "T+1 T+1"], length: int) -> Chain:
    """The K-step chain 0 → T of least total cost, `costs[s, t]` being the step t → s.

    Dynamic programming over "best chain of k steps that ends at t": O(K T²).
    """
    steps = costs.shape[0] - 1
    _check(steps, length)
    if costs.shape != (steps + 1, steps + 1):
        raise OcmError(f"costs must be square, (T+1) × (T+1); got {costs.shape}")
    allowed = np.where(np.triu(np.ones_like(costs, dtype=bool), k=1), costs, np.inf)
    best = np.full(steps + 1, np.inf)
    best[0] = 0.0
    came_from = []
    for _ in range(length):
        totals = best[:, None] + allowed
        came_from.append(np.argmin(totals, axis=0))
        best = np.min(totals, axis=0)
    if not np.isfinite(best[steps]):
        raise OcmError(f"no chain of K = {length} steps has a finite cost")
    chain = [steps]
    for previous in reversed(came_from[1:]):
        chain.append(int(previous[chain[-1]]))
    return tuple(reversed(chain))


CHAINS = {"even": even, "quadratic": quadratic, "strided": strided, "dit": dit}


def build(kind: str, steps: int, length: int) -> Chain:
    if kind not in CHAINS:
        raise OcmError(f"chain: {unknown(kind, CHAINS)}")
    chain = CHAINS[kind](steps, length)
    if any(later <= earlier for earlier, later in pairwise(chain)):
        raise OcmError(
            f"the {kind} chain of K = {length} over T = {steps} visits a timestep twice; "
            "take a smaller K or the even chain"
        )
    return chain


def downward(chain: Chain) -> Iterator[tuple[int, int]]:
    """The transitions (s, t) from t = T down to s = 0."""
    yield from reversed(list(zip((0, *chain[:-1]), chain, strict=True)))
