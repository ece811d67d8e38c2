"""Side by side: A B A B …, so that a slow spell of the machine falls on both.

The clock is the process's CPU time, since other processes may run beside; everything timed by it
runs in one thread (`single_thread`). Wall-clock time is asked for where the work is done elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.interface import Measured

Work = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Comparison:
    """Seconds of each repeat, of ours and of the baseline."""

    ours: Sequence[float]
    baseline: Sequence[float]

    @property
    def ratio(self) -> float:
        return median(self.ours) / median(self.baseline)

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.baseline, strict=True)]

    def measured(self, **details: Any) -> Measured:
        seconds = {"seconds": median(self.ours), "baseline_seconds": median(self.baseline)}
        repeats = {"repeats": len(self.ours)}
        return Measured(self.ratio, min(self.ratios), max(self.ratios), seconds | repeats | details)


def interleaved(
    ours: Work, baseline: Work, repeats: int, *, clock: Clock = time.process_time, warm: bool = True
) -> Comparison:
    if warm:
        ours(), baseline()
    pairs = [(seconds(ours, clock), seconds(baseline, clock)) for _ in range(repeats)]
    return Comparison(*(list(side) for side in zip(*pairs, strict=True)))


def seconds(work: Work, clock: Clock = time.process_time) -> float:
    start = clock()
    work()
    return clock() - start


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread for torch and for every BLAS."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """k of time ∝ size^k, by least squares on logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(times), 1)
    return float(slope)
