"""Fetch the Inception network, checked against the digest recorded for it."""

from __future__ import annotations

from ocm_core.features import inception
from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Stage
from ocm_core.schema.block import Params

STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=lambda experiment: ["all"] * ("inception" in experiment.spaces),
    reads=("features",),
    after=("fetch_score",),
    local=True,
)


class FetchedFeatures(Artifact):
    """A folder with Inception's file."""


def run(job: Job) -> None:
    job.note(url=inception.fetch(job.folder))
