"""Peak of the memory that a piece of work adds, from the allocator's own record.

torch's profiler notes each allocation on the CPU and each release; their running sum, from zero at
the start, is what the work holds at a time. What was there before (weights, gradients) is not in.
"""

from __future__ import annotations

import os
from itertools import accumulate

from torch.profiler import ProfilerActivity, profile

from benchmarks.timing import Work

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would announce each profile


def peak_bytes(work: Work) -> int:
    work()  # what is allocated once and kept is not counted
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        work()
    recorded = profiled.profiler.kineto_results.events()
    events = sorted((e for e in recorded if e.name() == "[memory]"), key=lambda e: e.start_ns())
    return max(accumulate((int(event.nbytes()) for event in events), initial=0))
