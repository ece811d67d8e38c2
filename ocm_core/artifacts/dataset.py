"""The data set of an experiment as it was published: from a package, an archive, or drawn here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ocm_core.datasets.interface import DataSet

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

ARCHIVES = Path("datasets")


def open_data(job: Job) -> DataSet:
    data = job.experiment.data
    opened: DataSet = import_module(f"ocm_core.datasets.{data.kind}").open_data(data, ARCHIVES)
    return opened


def provenance_file(folder: Path) -> Path:
    """Where `fetch_*` keeps the digests of what it found."""
    return folder / "provenance.json"
