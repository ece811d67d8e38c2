"""The archives of a data set: in their place, checked, and indexed; the record of it is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ocm_core.artifacts.dataset import open_data, provenance_file

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    data = open_data(job)
    provenance = json.dumps(data.provenance, indent=1, sort_keys=True)
    provenance_file(job.folder).write_text(f"{provenance}\n")
    job.note(
        items={split: len(items) for split, items in data.splits.items()},
        archives=data.provenance["archives"],
    )
