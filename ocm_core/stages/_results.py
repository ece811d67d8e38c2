"""Rows of the results table as the artifact of an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.results.table import Results

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

RESULTS_FILE = "results.csv"


class ResultsTable(Artifact):
    """The rows that one evaluation adds to the experiment's table of results."""

    def save(self, rows: Results) -> None:
        rows.write(self.folder / RESULTS_FILE)

    def load(self) -> Results:
        return Results.read(self.folder / RESULTS_FILE)


def machine_class(job: Job) -> str:
    """Return the kind of machine that numbers may depend on: `x86_64, CPU`, or a GPU's name."""
    import platform

    import torch

    device = torch.cuda.get_device_name() if job.device == "cuda" else job.device.upper()
    return f"{platform.machine()}, {device}"
