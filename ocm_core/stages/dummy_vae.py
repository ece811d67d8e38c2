"""Write an autoencoder with random weights in the published folder layout, for smoke runs."""

from ocm_core.rng.streams import seed_torch
from ocm_core.stages import Artifact, Job, Params, Stage, require

SEED = 0

STAGE: Stage[Params] = Stage(
    __name__,
    "fetch",
    parts=lambda experiment: ["all"] * (experiment.encode.vae_origin == "generated"),
    reads=("encode.latent",),
)


class DummyVae(Artifact):
    """A folder as diffusers writes an `AutoencoderKL`."""


def run(job: Job) -> None:
    """Draw random weights, and save them as diffusers does."""
    from ocm_core.latents.vae import new_autoencoder, save_folder  # import diffusers

    config = require(job.experiment.encode.latent).vae.config
    seed_torch(SEED)
    model = new_autoencoder(config, "encode.latent.vae.config")
    save_folder(model, job.folder, config["scaling_factor"])
