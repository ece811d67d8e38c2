"""A published reference set: in its place, checked, unpacked; the record of it is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ocm_core.artifacts.dataset import ARCHIVES, provenance_file
from ocm_core.features.published_reference import open_reference
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    name = require(require(job.experiment.evaluate.features).reference)
    opened = open_reference(name, ARCHIVES)
    provenance = json.dumps(opened.provenance, indent=1, sort_keys=True)
    provenance_file(job.folder).write_text(f"{provenance}\n")
    job.note(images=len(opened.images), dimension=len(opened.statistics.mean))
