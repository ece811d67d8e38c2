"""Small diffusers models of many kinds, with random weights, and what they themselves compute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.networks.diffusers_unet import DiffusersUNet, UNet2DModel
from ocm_core.networks.keys import load_published

from .golden import Golden

CLASSES = 5
PLAIN = {
    "sample_size": 8,
    "in_channels": 3,
    "out_channels": 3,
    "block_out_channels": (8, 16),
    "down_block_types": ("DownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "UpBlock2D"),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "add_attention": False,
}
ATTENDING = PLAIN | {
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 4,
    "add_attention": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "attention": ATTENDING,
    "scale_shift": ATTENDING | {"resnet_time_scale_shift": "scale_shift", "attention_head_dim": 8},
    "learned_variance": ATTENDING | {"in_channels": 1, "out_channels": 2, "norm_num_groups": 2},
    "classes": ATTENDING | {"num_class_embeds": CLASSES, "time_embedding_dim": 20},
    "learned_time": PLAIN | {"time_embedding_type": "learned", "num_train_timesteps": 1000},
    "no_middle": PLAIN | {"mid_block_type": None, "layers_per_block": 2},
    # as google/ddpm-cifar10-32 has it, and an input that is not centred
    "first_published": ATTENDING
    | {
        "center_input_sample": True,
        "flip_sin_to_cos": False,
        "freq_shift": 1,
        "downsample_padding": 0,
        "norm_eps": 1e-6,
        "mid_block_scale_factor": 2.0,
    },
    "resnet_resampling": PLAIN
    | {"downsample_type": "resnet", "upsample_type": "resnet", "act_fn": "gelu", "dropout": 0.2},
}


def model(config: dict[str, Any], seed: int = 0) -> UNet2DModel:
    """Every parameter drawn anew: norms that are not the identity tell one layer from another."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = UNet2DModel(**config)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
    return made.eval()


@dataclass(frozen=True)
class OwnModel(Golden):
    def fresh(self) -> ScoreNetwork:
        return DiffusersUNet(model(self.meta["config"], seed=1))

    def load(self) -> tuple[ScoreNetwork, nn.Module | None]:
        network = self.fresh()
        load_published(network, self.group("weights/"))
        return network.eval(), None


@cache
def own_model(name: str) -> OwnModel:
    config = CONFIGS[name]
    reference, draw = model(config), torch.Generator().manual_seed(2)
    arrays = {
        "x": torch.randn(3, config["in_channels"], 8, 12, generator=draw),
        "t": torch.tensor([0.0, 17.0, 899.0]),
    }
    if "num_class_embeds" in config:
        arrays["y"] = torch.tensor([4, 0, 2])
    times = arrays["t"].long() if name == "learned_time" else arrays["t"]
    with torch.no_grad():
        output = reference(arrays["x"], times, arrays.get("y")).sample
    parts = zip(("eps", "learned_variance"), output.split(config["in_channels"], 1), strict=False)
    weights = {f"weights/{key}": value for key, value in reference.state_dict().items()}
    return OwnModel({"config": config}, arrays | dict(parts) | weights)
