"""Rows of the results table as the artifact of an evaluation."""

import platform
from collections.abc import Iterable

import torch

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.job import Job
from ocm_core.results.table import Results, Row

RESULTS_FILE = "results.csv"


class ResultsTable(Artifact):
    """The rows that one evaluation adds to the experiment's table of results."""

    def save(self, rows: Iterable[Row]) -> None:
        Results(rows).write(self.folder / RESULTS_FILE)

    def load(self) -> Results:
        return Results.read(self.folder / RESULTS_FILE)


def machine_class(job: Job) -> str:
    """Return the kind of machine that numbers may depend on: `x86_64, CPU`, or a GPU's name."""
    device = torch.cuda.get_device_name() if job.device == "cuda" else job.device.upper()
    return f"{platform.machine()}, {device}"
