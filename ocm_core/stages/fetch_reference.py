"""Fetch a published reference set, check and unpack it."""

from ocm_core.features.published_reference import open_reference
from ocm_core.stages import Artifact, Experiment, Job, Params, Stage, require
from ocm_core.stages.fetch_data import ARCHIVES, write_provenance


def has_published_reference(experiment: Experiment) -> bool:
    """Whether samples are compared with a published set."""
    return experiment.features is not None and experiment.features.reference is not None


STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=lambda experiment: ["all"] * has_published_reference(experiment),
    reads=("features",),
    after=("fetch_score",),
    local=True,
)


class FetchedReference(Artifact):
    """A record of the file, which itself stays in `datasets/`."""


def run(job: Job) -> None:
    """Fetch the file, and record its digest."""
    name = require(require(job.experiment.features).reference)
    statistics, images, provenance = open_reference(name, ARCHIVES)
    write_provenance(job.folder, provenance)
    job.note(images=len(images), dimension=len(statistics.mean))
