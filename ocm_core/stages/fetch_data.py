"""Check and index the archives of a data set, and record what they hold."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ocm_core.datasets.base import DataSet
from ocm_core.errors import OcmError
from ocm_core.io.reading import read_json_object
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage

ARCHIVES = Path("datasets")
PROVENANCE_FILE = "provenance.json"


def data_modules(experiment: Experiment, part: str = "all") -> list[str]:
    """Return the module that opens the data set."""
    return [f"ocm_core.datasets.{experiment.data.kind}"]


STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=lambda experiment: ["all"] * experiment.data.archived,
    reads=("data",),
    plugins=data_modules,
    user_files=lambda experiment: [str(f) for f in experiment.data.user_files().values()],
    after=("fetch_score",),
    local=True,
)


class FetchedData(Artifact):
    """A record of the archives, which themselves stay in `datasets/` or where the user has them."""


def open_data(job: Inputs) -> DataSet:
    """Open the data set as it was published; refuse other data than those that were looked at."""
    opened = job.experiment.data.open(ARCHIVES)
    if fetched := job.find(FetchedData):
        seen = read_json_object(fetched.folder / PROVENANCE_FILE, "run `fetch_data` again")
        if seen["archives"] != opened.provenance["archives"]:
            raise OcmError(
                f"{fetched.folder}: the data have changed since they were looked at; run"
                " Snakemake again"
            )
    return opened


def write_provenance(folder: Path, provenance: Mapping[str, Any]) -> None:
    """Record where data come from, in place of the data."""
    text = json.dumps(provenance, indent=1, sort_keys=True)
    (folder / PROVENANCE_FILE).write_text(f"{text}\n")


def run(job: Job) -> None:
    """Open the archives, and record their digests and sizes."""
    data = job.experiment.data.open(ARCHIVES)
    write_provenance(job.folder, data.provenance)
    job.note(
        items={split: len(items) for split, items in data.splits.items()},
        archives=data.provenance["archives"],
    )
