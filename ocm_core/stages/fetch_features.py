"""Fetch the Inception network, checked against the digest recorded for it."""

from ocm_core.features import inception
from ocm_core.stages import Artifact, Job, Params, Stage

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
    """Fetch the file."""
    job.note(url=inception.fetch(job.folder))
