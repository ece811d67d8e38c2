"""Seconds that Snakemake and DVC take to find that `digits` is up to date.

Wall-clock time of a process. It is measured only if a dry run says that there is nothing to do, so
that a benchmark never starts a pipeline.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import seconds
from ocm_core.pipeline.graph import graph_of
from ocm_core.pipeline.state import UP_TO_DATE, states

EXPERIMENT = "digits"
REPEATS = 3


@dataclass(frozen=True)
class PipelineTool:
    arguments: tuple[str, ...]
    dry: str  # the option of a dry run
    idle: str  # what it says when there is nothing to do
    target: float

    def run(self, *more: str) -> str:
        program, *rest = self.arguments
        command = [str(Path(sys.executable).parent / program), *rest, *more]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout + done.stderr


TOOLS = {
    "snakemake": PipelineTool(
        ("snakemake", "--cores", "1", f"reports/{EXPERIMENT}.html"),
        "--dry-run",
        "Nothing to be done",
        3.0,
    ),
    "dvc": PipelineTool(
        ("dvc", "repro", f"report@{EXPERIMENT}"),
        "--dry",
        "Data and pipelines are up to date",
        4.0,
    ),
}


def _time(tool: PipelineTool) -> Measured:
    unready = [task for task, state in states(graph_of(EXPERIMENT)).items() if state != UP_TO_DATE]
    if unready:
        reason = f"{len(unready)} tasks of {EXPERIMENT} are missing or stale"
        return Measured.not_run(f"{reason}; run `make report` first")
    if tool.idle not in tool.run(tool.dry):
        return Measured.not_run(f"{tool.arguments[0]} has something to do; run `ocm sync` first")
    taken = [seconds(tool.run, time.perf_counter) for _ in range(REPEATS)]
    return Measured(median(taken), min(taken), max(taken), {"command": " ".join(tool.arguments)})


BENCHMARKS = [
    Benchmark(
        name=f"noop_{name}",
        what=f"`{name}` on {EXPERIMENT} with nothing to do, wall clock",
        baseline="none: seconds",
        target=tool.target,
        measure=partial(_time, tool),
        unit="s",
    )
    for name, tool in TOOLS.items()
]
