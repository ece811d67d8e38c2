"""Write an autoencoder with random weights in the published folder layout, for smoke runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocm_core.pipeline.artifacts import Artifact
from ocm_core.pipeline.stage import Stage
from ocm_core.schema.block import Params, require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

SEED = 0


def _parts(experiment: Experiment) -> list[str]:
    latent = experiment.encode.latent
    return ["all"] if latent is not None and latent.vae.origin == "generated" else []


STAGE: Stage[Params] = Stage(__name__, "fetch", parts=_parts, reads=("encode.latent",))


class DummyVae(Artifact):
    """A folder as diffusers writes an `AutoencoderKL`."""


def run(job: Job) -> None:
    from ocm_core.latents.vae import new_autoencoder, save_folder
    from ocm_core.rng.streams import seed_torch

    config = require(job.experiment.encode.latent).vae.config
    seed_torch(SEED)
    model = new_autoencoder(config, "encode.latent.vae.config")
    save_folder(model, job.folder, config["scaling_factor"])
