"""How long the jobs of an experiment take on so many GPUs, started as Snakemake starts them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from ocm_core.pipeline.table import BY_NAME, Task, inputs
from ocm_core.planning.job_needs import JobNeeds
from ocm_core.schema.experiment import Experiment

Priority = Callable[[Task], int]


def wall_hours(
    experiment: Experiment, jobs: Sequence[JobNeeds], gpus: int, priority: Priority | None = None
) -> float:
    """Of those that are ready, the job of the highest priority that fits starts first."""
    first = priority or (lambda task: BY_NAME[task.stage].priority(experiment, task.part))
    waiting = sorted(jobs, key=lambda job: -first(job.task))
    known = {job.task for job in jobs}
    needed = {task: known.intersection(inputs(experiment, task)) for task in known}
    running: list[tuple[float, Task, int]] = []
    now, free, done = 0.0, gpus, set[Task]()
    while waiting or running:
        for job in [job for job in waiting if needed[job.task] <= done]:
            if job.gpus <= free:
                heapq.heappush(running, (now + job.hours, job.task, job.gpus))
                free -= job.gpus
                waiting.remove(job)
        now, task, given = heapq.heappop(running)
        free, done = free + given, done | {task}
    return now
