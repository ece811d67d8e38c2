"""The UNet of DDPM (CelebA 64, LSUN Bedroom), as the PyTorch checkpoints have it.

Its marks: the embedding is added inside the residual block, attention has one head and separate
projections, GroupNorm's eps is 1e-6, halving pads right and bottom only, and the time encoding is
sine first with frequencies that reach 1/10000 exactly.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ocm_core.networks._layers import attend, map_to_tokens, time_angles, tokens_to_map, zeroed
from ocm_core.networks._unet import LAYERS, SMALL_UNET, UNet, UNetConfig
from ocm_core.shapes import NetworkTimes

SMALL = SMALL_UNET
EPS = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(UNetConfig):
    """The sizes of a UNet of DDPM."""

    resample_convs: bool = True  # False: the mean of four pixels on the way down, copies up


class DdpmAttentionBlock(nn.Module):
    """One head, with separate projections."""

    published_names: ClassVar = {"query": "q", "key": "k", "value": "v", "output": "proj_out"}

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=EPS)
        self.query = nn.Conv2d(channels, channels, 1)
        self.key = nn.Conv2d(channels, channels, 1)
        self.value = nn.Conv2d(channels, channels, 1)
        self.output = zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(x)
        projections = (self.query, self.key, self.value)
        tokens = attend(*(map_to_tokens(project(hidden), 1) for project in projections))
        attended: Tensor = self.output(tokens_to_map(tokens, x.shape))
        return x + attended


class DdpmUNet(UNet):
    """The UNet of DDPM."""

    config: Config
    norm_eps = EPS
    block_names = ("norm1", "conv1", "temb_proj", "norm2", "conv2", "nin_shortcut")
    published_heads: ClassVar = {
        "simple": {"norm": "norm_out2", "conv": "conv_out2"},
        "complex": {"residual": "before_out", "norm": "norm_out2", "conv": "conv_out2"},
    }

    def attention(self, channels: int, up: bool = False) -> nn.Module:
        return DdpmAttentionBlock(channels, self.config.norm_groups)

    def downsample(self, channels: int) -> nn.Module:
        if not self.config.resample_convs:
            return nn.AvgPool2d(2)
        conv = nn.Conv2d(channels, channels, 3, stride=2)
        return nn.Sequential(OrderedDict(pad=nn.ZeroPad2d((0, 1, 0, 1)), conv=conv))

    def upsample(self, channels: int) -> nn.Module:
        if not self.config.resample_convs:
            return nn.Upsample(scale_factor=2.0, mode="nearest")
        return super().upsample(channels)

    def encode_time(self, time: NetworkTimes) -> Tensor:
        half = self.config.base_channels // 2
        angles = time_angles(time, half, half - 1)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def _published_names(self) -> dict[str, str]:
        theirs = ("conv_in", "mid.block_1", "mid.attn_1", "mid.block_2", "norm_out", "conv_out")
        names = dict(zip(LAYERS, theirs, strict=True))
        names |= {"time_mlp.0": "temb.dense.0", "time_mlp.2": "temb.dense.1"}
        for level in range(self.config.levels):
            down, up = f"encoder.{level}", f"decoder.{self.config.levels - 1 - level}"
            names[f"{down}.resample"] = f"down.{level}.downsample"
            names[f"{up}.resample"] = f"up.{level}.upsample"
            for block in range(self.config.blocks_per_level + 1):
                for ours, side in ((down, f"down.{level}"), (up, f"up.{level}")):
                    names[f"{ours}.stages.{block}.residual"] = f"{side}.block.{block}"
                    names[f"{ours}.stages.{block}.attention"] = f"{side}.attn.{block}"
        return names


NETWORK = DdpmUNet
