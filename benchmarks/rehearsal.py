"""Run the paper's experiments with full-size random networks, a few images and two iterations.

Each goes to its page, one after another, and its artifacts are removed. Jobs that run a network
take all cores in turn, because few of them could run side by side. The table compares what
`ocm doctor` counts and expects on one core with the processor time, the time of the run and the
largest process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.doctor import cost
from ocm_core.errors import OcmError
from ocm_core.pipeline.graph import graph_of
from ocm_core.text import text_table

PRESETS = "smoke_rehearsal"
COLUMNS = ("experiment", "jobs", "passes", "operations", "expected", "processor", "run", "peak")


def rehearse(name: str, cores: str) -> tuple[str, ...]:
    """Run one experiment from nothing, and return its row of the table."""
    small, begun = f"{name}_{PRESETS}", time.monotonic()
    shutil.rmtree(Path("artifacts", small), ignore_errors=True)
    graph, page = graph_of(small), f"reports/{small}.html"
    work = [cost.work_of(graph.experiment, task) for task in graph.tasks]
    dear = {task.stage for task, (passes, _) in zip(graph.tasks, work, strict=True) if passes}
    threads = (f"{stage}={cores}" for stage in sorted(dear))  # one after another, on all cores
    tool = ["snakemake", "--cores", cores, "--forceall", page, "--set-threads", *threads]
    run = subprocess.Popen(tool)
    _, status, used = os.wait4(run.pid, 0)  # with all jobs that it waited for
    if status:
        raise OcmError(f"{small}: failed; its log is above")
    wall = time.monotonic() - begun
    expected = sum(cost.seconds(graph.experiment, task, "cpu") for task in graph.tasks)
    shutil.rmtree(Path("artifacts", small))
    return (
        name,
        str(len(graph.tasks)),
        f"{sum(passes for passes, _ in work):.0f}",
        f"{cost.metric(sum(passes * network.operations for passes, network in work))}FLOP",
        cost.duration(expected),
        cost.duration(used.ru_utime + used.ru_stime),
        cost.duration(wall),
        f"{used.ru_maxrss / 1e6:.1f} GB",  # of the largest process, files that it maps included
    )


def main(names: list[str], cores: str = "2") -> None:
    """Rehearse experiments and print the table after each, so that a failure loses nothing."""
    rows: list[tuple[str, ...]] = []
    for name in names or list(CHECKPOINTS):
        rows.append(rehearse(name, cores))
        print("\n".join(text_table(COLUMNS, rows, right=COLUMNS[1:])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
