"""Autoencoders of a few channels, with random weights."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ocm_core.latents.vae import AutoencoderKL, new_autoencoder

CONFIG: dict[str, Any] = {
    **{"in_channels": 3, "out_channels": 3, "latent_channels": 4, "scaling_factor": 0.25},
    **{"block_out_channels": [4, 8, 8], "layers_per_block": 1, "norm_num_groups": 2},
}


def tiny(seed: int = 0, **changes: Any) -> AutoencoderKL:
    torch.manual_seed(seed)
    return new_autoencoder({**CONFIG, **changes}, "a test").eval()


def saved(folder: Path, **changes: Any) -> AutoencoderKL:
    """By diffusers' own means."""
    model = tiny(**changes)
    model.save_pretrained(folder, safe_serialization=True)
    return model


def images(count: int = 2, channels: int = 3, side: int = 16) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.manual_seed(1)) * 2 - 1
