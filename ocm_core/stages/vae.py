"""Train the autoencoder of an experiment that has no published one."""

import torch

from ocm_core.rng.streams import seed_torch
from ocm_core.stages import Artifact, Job, Params, Stage, Work, require
from ocm_core.stages._networks import train
from ocm_core.stages.fetch_data import FetchedData, data_modules, open_data
from ocm_core.training.batches import InMemory

STAGE: Stage[Params] = Stage(
    __name__,
    "encode",
    parts=lambda experiment: ["all"] * (experiment.encode.vae_origin == "trained"),
    takes=lambda experiment, part: [FetchedData.task()],
    reads=("data", "encode.latent", "train.vae"),
    plugins=data_modules,
    shared=True,
    gpu=True,
    work=lambda e, part: Work(require(e.train.vae).passes, "autoencoder"),
)


class TrainedVae(Artifact):
    """A folder as diffusers writes an `AutoencoderKL`, and the loss curve."""


def run(job: Job) -> None:
    """Train on the training images, and measure the scale of the latents."""
    from ocm_core.latents.training import VaeFitting, measured_scaling  # import diffusers
    from ocm_core.latents.vae import new_autoencoder, save_folder

    vae, data = require(job.experiment.encode.latent).vae, open_data(job)
    settings, split = require(job.experiment.train.vae), data.splits["train"]
    values = torch.from_numpy(split.read(range(len(split)))).float()
    images = 2 * values / (require(data.levels) - 1) - 1
    seed_torch(settings.seed, "vae")
    model = new_autoencoder(vae.config, "encode.latent.vae.config")
    model.to(job.device)
    train(job, VaeFitting(model, InMemory(images), require(vae.kl_weight)), settings, "autoencoder")
    scaling = measured_scaling(model, images, settings.batch_size)
    save_folder(model, job.folder, scaling)
    job.note(parameters=sum(p.numel() for p in model.parameters()), scaling_factor=scaling)
