"""How time and memory are measured.

Ours and the baseline take turns (A B A B …), so that a slow spell of the machine falls on both. The
clock is the CPU time of the process, since other processes may run at the same time; what it times
runs in one thread (`single_thread`). Work that is done in other processes is timed by the wall
clock. Memory is the peak that the work adds, as torch's profiler records it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch.profiler import ProfilerActivity, profile

from benchmarks.interface import Measured

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler prints a line at each start

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


def peak_bytes(work: Work) -> int:
    """The most that `work` holds at a time, beyond what exists before it (weights, gradients).

    The profiler notes each allocation on the CPU and each release; their running sum has the peak.
    """
    work()  # what is allocated once and kept is not counted
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    recorded = profiled.profiler.kineto_results.events()
    events = sorted((e for e in recorded if e.name() == "[memory]"), key=lambda e: e.start_ns())
    return max(accumulate((int(event.nbytes()) for event in events), initial=0))
