"""What tasks took in earlier runs here, as Snakemake measured them; for GPUs, what is computed."""

from __future__ import annotations

import csv
from pathlib import Path

from ocm_core.pipeline.table import Task

LOGS = Path("logs")


def measured(experiment: str, task: Task) -> float | None:
    """Seconds; None where there was no run."""
    file = LOGS / experiment / task.stage / f"{task.part}.benchmark.tsv"
    if not file.exists():
        return None
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    return float(rows[-1]["s"]) if rows else None


def computed(experiment: str) -> dict[str, float]:
    """GPU hours of a whole experiment on a published network, by GPU; of others nothing is said."""
    from ocm_core.planning.summary import hours  # it counts on the networks themselves

    return hours(experiment) or {}
