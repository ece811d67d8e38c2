"""Networks with random weights, most of them at their published sizes, and their denoisers."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from ocm_core.checkpoints.registry import CHECKPOINTS, Checkpoint
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.networks import build
from ocm_core.params.compose import compose
from ocm_core.schema.experiment import TrunkNetworkParams

Module = TypeVar("Module", bound=nn.Module)

DIT_S2 = {
    "image_size": 32,
    "patch_size": 2,
    "in_channels": 4,
    "width": 384,
    "depth": 12,
    "attention_heads": 6,
    "num_classes": 1000,
    "learns_variance": True,
}


def cifar10_unet() -> tuple[Denoiser, nn.Module, tuple[int, ...]]:
    """The network, a head as published, and the shape of an image."""
    return _published(CHECKPOINTS["cifar10_ls"])


def dit_s2() -> tuple[Denoiser, nn.Module, tuple[int, ...]]:
    network = drawn(build("dit", DIT_S2))
    time = CHECKPOINTS["imagenet256"].time
    denoiser = Denoiser(network, schedules.linear(1000), time)
    return denoiser, drawn(network.make_head("adaln")), (4, 32, 32)


def _published(checkpoint: Checkpoint) -> tuple[Denoiser, nn.Module, tuple[int, ...]]:
    network = drawn(checkpoint.network())
    schedule = schedules.build(checkpoint.schedule, checkpoint.steps)
    return (
        Denoiser(network, schedule, checkpoint.time),
        drawn(network.make_head(checkpoint.head)),
        compose(checkpoint.name).shape,
    )


def small_unet(width: int = 16) -> ScoreNetwork:
    """The network of `digits`: two levels, 8×8 grey images."""
    network = compose("digits").network
    assert isinstance(network, TrunkNetworkParams)
    return drawn(build(network.family, network.config | {"base_channels": width}))


def small_denoiser() -> Denoiser:
    return Denoiser(small_unet(), schedules.linear(1000), TimeConvention())


def drawn(module: Module) -> Module:
    """Give layers that are initialised to zero random weights, too."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1 and not parameter.any():
                nn.init.normal_(parameter, std=0.02)
    return module.eval()
