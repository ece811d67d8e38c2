"""Fetch a published reference set, check and unpack it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage
from ocm_core.schema.block import Params, require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment


def has_published_reference(experiment: Experiment) -> bool:
    return experiment.features is not None and experiment.features.reference is not None


STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=lambda experiment: ["all"] if has_published_reference(experiment) else [],
    reads=("features",),
    after=("fetch_score",),
    local=True,
)


class FetchedReference(Artifact):
    """A record of the file, which itself stays in `datasets/`."""


def run(job: Job) -> None:
    from ocm_core.features.published_reference import open_reference
    from ocm_core.stages.fetch_data import ARCHIVES, PROVENANCE_FILE

    opened = open_reference(require(require(job.experiment.features).reference), ARCHIVES)
    provenance = json.dumps(opened.provenance, indent=1, sort_keys=True)
    (job.folder / PROVENANCE_FILE).write_text(f"{provenance}\n")
    job.note(images=len(opened.images), dimension=len(opened.statistics.mean))
