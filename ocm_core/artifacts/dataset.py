"""The data set of an experiment as it was published: from a package, an archive, or drawn here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ocm_core.datasets.interface import DataSet
from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

ARCHIVES = Path("datasets")


def open_data(job: Job) -> DataSet:
    data = job.experiment.data
    opened: DataSet = import_module(f"ocm_core.datasets.{data.kind}").open_data(data, ARCHIVES)
    if fetched := job.inputs.get("fetch_data/all"):
        _refuse_others(fetched, opened)
    return opened


def _refuse_others(fetched: Path, opened: DataSet) -> None:
    """What `fetch_data` has seen is what every stage after it reads."""
    seen = read_json_object(provenance_file(fetched), "run `fetch_data` again")
    if seen["archives"] != opened.provenance["archives"]:
        raise OcmError(
            f"{fetched}: the data have changed since they were looked at; run Snakemake again"
        )


def provenance_file(folder: Path) -> Path:
    """Where `fetch_*` keeps the digests of what it found."""
    return folder / "provenance.json"
