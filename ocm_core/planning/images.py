"""The networks around a score network: the autoencoder, and Inception for distances."""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module

import torch

from ocm_core.artifacts.trained import frozen
from ocm_core.compat import make_torchvision_importable
from ocm_core.latents.autoencoder import new_autoencoder
from ocm_core.params.resolved import load
from ocm_core.planning.counting import Batched, batched
from ocm_core.planning.units import META

_SIDE = 299  # of the images that Inception sees


@cache
def autoencoder(name: str) -> tuple[Batched, Batched] | None:
    """Encoding and decoding, where the experiment of that name has an autoencoder."""
    experiment = load(name)
    latent = experiment.encode.latent
    if latent is None:
        return None
    with torch.device(META):
        model = frozen(new_autoencoder(latent.vae.config, f"encode.latent of {name}"), META)
    pixels, code = experiment.data.shape, experiment.shape
    return (
        batched(lambda n: partial(model.encode, torch.empty(n, *pixels, device=META))),
        batched(lambda n: partial(model.decode, torch.empty(n, *code, device=META))),
    )


@cache
def inception() -> Batched:
    """torchvision's: its layers have the shapes of clean-fid's, which is a file of its own."""
    make_torchvision_importable()
    module = import_module("torchvision.models.inception")
    with torch.device(META):
        model = frozen(module.Inception3(aux_logits=False, init_weights=False), META)
    model.fc = torch.nn.Identity()
    return batched(lambda n: partial(model, torch.empty(n, 3, _SIDE, _SIDE, device=META)))
