"""Fetch the Inception network, checked against the digest recorded for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage
from ocm_core.schema.block import Params

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment


def _parts(experiment: Experiment) -> list[str]:
    features = experiment.features
    return ["all"] if features is not None and "inception" in features.spaces else []


STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=_parts,
    reads=("features",),
    plugins=lambda experiment, part: ["ocm_core.features.inception"],
    after=("fetch_score",),
    local=True,
)


class FetchedFeatures(Artifact):
    """A folder with Inception's file."""


def run(job: Job) -> None:
    from ocm_core.features import inception

    job.note(url=inception.fetch(job.folder))
