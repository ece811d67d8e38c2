"""Estimate how long a run takes, and what time and memory a job asks of a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import ceil

from ocm_core.doctor.pace import network_size, pace_of, this_device
from ocm_core.doctor.work import work_of
from ocm_core.pipeline.graph import Graph
from ocm_core.pipeline.launch import seen
from ocm_core.pipeline.stage import Task, stages
from ocm_core.schema.experiment import Experiment
from ocm_core.text import plural

START = 4.0  # seconds of a process that imports torch
JOB_START = 30  # minutes of a job on a cluster: to start, to load and to copy
MARGIN = 3.0  # a job asks for so many times the time that it is expected to take
LOADING = 2  # weights are in memory twice while they are loaded

Todo = Sequence[tuple[Graph, Task]]  # inputs first


def operations(experiment: Experiment, task: Task) -> float:
    """Return the operations of a task: its passes times those of one pass."""
    work = work_of(experiment, task)
    return work.passes * network_size(experiment, work.network).operations if work.passes else 0.0


def seconds(experiment: Experiment, task: Task, device: str) -> float:
    """Return how long a task takes; `device` is that of the tasks that compute on a GPU."""
    count = operations(experiment, task)
    if not count:
        return START
    on_gpu = stages()[task.stage].computes_on_gpu(experiment)
    return START + count / pace_of(experiment, device if on_gpu else "cpu").rate


def phase_seconds(graph: Graph, device: str) -> dict[str, float]:
    """Return how long the tasks of each phase take, one after another."""
    total: dict[str, float] = {}
    for task in graph.tasks:
        phase = graph.stage(task).phase
        total[phase] = total.get(phase, 0.0) + seconds(graph.experiment, task, device)
    return total


def expected_time(todo: Todo, cores: int, gpus: int | None = None) -> str:
    """Say how long these tasks take on so many cores and GPUs; None: the GPUs of this machine."""
    device = "cuda" if gpus else this_device()
    workers = (gpus or len(seen(os.environ))) if device == "cuda" else cores
    taken = {(graph, task): seconds(graph.experiment, task, device) for graph, task in todo}
    rates = {str(pace_of(graph.experiment, device)) for graph, _ in todo}
    rate = f" ({rates.pop()})" if len(rates) == 1 else ""
    time = duration(wall_seconds(todo, taken, workers))
    return f"{plural(len(todo), 'job')}, about {time}{rate}"


def wall_seconds(todo: Todo, taken: Mapping[tuple[Graph, Task], float], workers: int) -> float:
    """Return the longest path through the graph, or the sum over all workers if that is more."""
    ends: dict[tuple[Graph, Task], float] = {}
    for graph, task in todo:
        before = [ends.get((graph, node), 0.0) for node in graph.inputs[task]]
        ends[graph, task] = max(before, default=0.0) + taken[graph, task]
    return max(max(ends.values(), default=0.0), sum(taken.values()) / max(1, workers))


def duration(seconds: float) -> str:
    """Return `40 s`, `12 min` or `3.5 h`, and never 0."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 100 else f"{hours:,.0f} h"


def job_minutes(
    experiment: Experiment, task: Task, attempt: int = 1, gpus: int = 1, longest: int = 0
) -> int:
    """Return the minutes that a job asks of a cluster, more in every attempt.

    `longest` is the limit of the partition, 0 for none: a job that needs longer goes on in its next
    attempt.
    """
    expected = (seconds(experiment, task, "cuda") - START) / max(1, gpus)
    minutes = ceil(attempt * (JOB_START + MARGIN * expected / 60))
    return min(minutes, longest or minutes)


def job_memory(experiment: Experiment, task: Task, attempt: int = 1, processes: int = 1) -> int:
    """Return the MB of memory that a job asks of each node, more in every attempt."""
    work = work_of(experiment, task)
    weights = network_size(experiment, work.network).weights if work.passes else 0
    each = stages()[task.stage].memory + LOADING * weights / 1e6
    return ceil(attempt * max(1, processes) * each)
