"""Samples of an experiment as images."""

from collections.abc import Callable
from functools import partial

import torch

from ocm_core.features.images import Decode, SampleImages, SampleSet, identity
from ocm_core.stages import Inputs, require
from ocm_core.stages.fetch_vae import load_vae


def image_reader(job: Inputs) -> Callable[[SampleSet], SampleImages]:
    """Return what turns samples of this experiment into images."""
    levels = require(job.experiment.data.levels)
    return partial(SampleImages, decode=decoder(job), levels=levels)


def decoder(job: Inputs) -> Decode:
    """Return what decodes samples; the identity where they are images already."""
    if (latent := job.experiment.encode.latent) is None:
        return identity
    vae, size = load_vae(job), latent.batch_size

    def decode(latents: torch.Tensor) -> torch.Tensor:
        starts = range(0, len(latents), size)
        return torch.cat([vae.decode(latents[at : at + size]).cpu() for at in starts])

    return decode
