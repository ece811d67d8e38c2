"""What `ocm cost --jobs` prints: the jobs of an experiment as the profile asks for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ocm_core.planning.cost_report import workloads
from ocm_core.planning.job_needs import JobNeeds, jobs_of
from ocm_core.planning.schedule import wall_hours
from ocm_core.schema.experiment import Experiment
from ocm_core.text import plural, text_table


@dataclass(frozen=True)
class Cluster:
    gpus: int
    per_job: int
    model: str


def as_text(names: Sequence[str], cluster: Cluster) -> str:
    return "\n\n".join(_text(w.experiment, cluster) for w in workloads(names))


def as_json(names: Sequence[str], cluster: Cluster) -> str:
    found = {w.experiment.name: _json(w.experiment, cluster) for w in workloads(names)}
    return json.dumps(found, indent=2)


def _json(experiment: Experiment, cluster: Cluster) -> dict[str, Any]:
    jobs = jobs_of(experiment, cluster.model, cluster.per_job)
    return {
        "wall_hours": wall_hours(experiment, jobs, cluster.gpus),
        "jobs": {
            str(job.task): {
                "gpus": job.gpus,
                "hours": job.hours,
                "memory_mb": job.resources.memory,
                "minutes": job.resources.minutes,
            }
            for job in jobs
        },
    }


def _text(experiment: Experiment, cluster: Cluster) -> str:
    jobs = jobs_of(experiment, cluster.model, cluster.per_job)
    heads = ["stage", "jobs", "GPUs\neach", "GPU hours", "longest\nh", "asked\nmin", "asked\nMB"]
    rows = [_row(list(of)) for _, of in groupby(jobs, key=lambda job: job.task.stage)]
    hours = sum(job.gpus * job.hours for job in jobs)
    wall = wall_hours(experiment, jobs, cluster.gpus)
    said = (
        f"{experiment.name}: {plural(len(jobs), 'job')}, {hours:,.0f} hours of {cluster.model}; "
        f"{wall:,.1f} h on {cluster.gpus}, the longest jobs first"
    )
    return "\n".join([said, *text_table(heads, rows, right=heads[1:])])


def _row(jobs: list[JobNeeds]) -> list[str]:
    return [
        jobs[0].task.stage,
        str(len(jobs)),
        str(jobs[0].gpus),
        f"{sum(job.gpus * job.hours for job in jobs):,.2f}",
        f"{max(job.hours for job in jobs):,.2f}",
        str(max(job.resources.minutes for job in jobs)),
        str(max(job.resources.memory for job in jobs)),
    ]
