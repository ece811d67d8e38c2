"""The score network out of a folder that diffusers wrote: checked, in float32, under our keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.artifacts.score import SCORE_FILE
from ocm_core.artifacts.trained import save_networks
from ocm_core.checkpoints.diffusers_folder import describe
from ocm_core.checkpoints.diffusers_models import read_network
from ocm_core.errors import OcmError
from ocm_core.io.digests import sha256_of
from ocm_core.schema.experiment import DiffusersNetworkParams

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def fetch(job: Job) -> None:
    params = job.experiment.network
    assert isinstance(params, DiffusersNetworkParams)
    described = describe(params.path)
    if described.digest != params.digest:
        raise OcmError(
            f"{described.place}: not the model that the parameters were composed with; run "
            "`ocm params --write` to use this one, or put the other one back"
        )
    save_networks(job.folder / SCORE_FILE, {"": read_network(described)})
    files = {file.name: sha256_of(file) for file in described.files}
    job.note(
        provenance={
            "model": described.kind,
            "files": files,
            "sha256": params.digest,
            "licence": described.licence,
            "url": None,
            "page": described.folder.name,
        }
    )
