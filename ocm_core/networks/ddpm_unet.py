"""The UNet of DDPM (CelebA 64, LSUN Bedroom), as the PyTorch checkpoints have it.

Its marks: the embedding is added inside the residual block, attention has one head and separate
projections, GroupNorm's eps is 1e-6, halving pads right and bottom only, and the time encoding is
sine first with frequencies that reach 1/10000 exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ocm_core.networks._layers import (
    Attention,
    map_to_tokens,
    time_angles,
    tokens_to_map,
    zeroed,
)
from ocm_core.networks._unet import SMALL_UNET, ResidualBlock, UNet, UNetConfig
from ocm_core.networks.config import check_published, published_variance, read_config
from ocm_core.shapes import NetworkTimes

FAMILY = "ddpm_unet"
SMALL = SMALL_UNET
NEEDED = (
    "in_channels",
    "out_ch",
    "ch",
    "ch_mult",
    "num_res_blocks",
    "attn_resolutions",
    "resolution",
    "dropout",
)
OPTIONAL = ("resamp_with_conv",)


@dataclass(frozen=True, kw_only=True)
class Config(UNetConfig):
    """The sizes of a UNet of DDPM."""

    resample_convs: bool = True  # False: the mean of four pixels on the way down, copies up

    @classmethod
    def from_published(cls, arguments: Mapping[str, Any]) -> Self:
        """Translate the constructor arguments of the published code."""
        check_published(arguments, NEEDED, {}, FAMILY, OPTIONAL)
        sizes = [arguments["resolution"] >> level for level in range(len(arguments["ch_mult"]))]
        attended = arguments["attn_resolutions"]
        values = {
            "in_channels": arguments["in_channels"],
            "base_channels": arguments["ch"],
            "channel_multipliers": arguments["ch_mult"],
            "blocks_per_level": arguments["num_res_blocks"],
            "attention_levels": [i for i, size in enumerate(sizes) if size in attended],
            "dropout": arguments["dropout"],
            "resample_convs": arguments.get("resamp_with_conv", True),
            "learns_variance": published_variance(arguments, "out_ch", FAMILY),
        }
        return read_config(cls, values, FAMILY)


class DdpmResidualBlock(ResidualBlock):
    """The embedding is added before the second norm."""

    norm_eps = 1e-6
    published_names: ClassVar = {
        "norm_in": "norm1",
        "conv_in": "conv1",
        "embed": "temb_proj",
        "norm_out": "norm2",
        "conv_out": "conv2",
        "shortcut": "nin_shortcut",
    }


class DdpmAttentionBlock(nn.Module):
    """One head, with separate projections."""

    published_names: ClassVar = {"query": "q", "key": "k", "value": "v", "output": "proj_out"}

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=DdpmResidualBlock.norm_eps)
        self.query = nn.Conv2d(channels, channels, 1)
        self.key = nn.Conv2d(channels, channels, 1)
        self.value = nn.Conv2d(channels, channels, 1)
        self.attend = Attention()
        self.output = zeroed(nn.Conv2d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(x)
        projections = (self.query, self.key, self.value)
        tokens = self.attend(*(map_to_tokens(project(hidden), 1) for project in projections))
        attended: Tensor = self.output(tokens_to_map(tokens, x.shape))
        return x + attended


class Downsample(nn.Module):
    """A convolution that halves; it pads right and bottom only."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, hidden: Tensor) -> Tensor:
        halved: Tensor = self.conv(F.pad(hidden, (0, 1, 0, 1)))
        return halved


class DdpmUNet(UNet):
    """The UNet of DDPM."""

    config: Config
    residual_block = DdpmResidualBlock
    published_heads: ClassVar = {
        "simple": {"norm": "norm_out2", "conv": "conv_out2"},
        "complex": {"residual": "before_out", "norm": "norm_out2", "conv": "conv_out2"},
    }

    def attention(self, channels: int) -> nn.Module:
        return DdpmAttentionBlock(channels, self.config.norm_groups)

    def downsample(self, channels: int) -> nn.Module:
        return Downsample(channels) if self.config.resample_convs else nn.AvgPool2d(2)

    def upsample(self, channels: int) -> nn.Module:
        if not self.config.resample_convs:
            return nn.Upsample(scale_factor=2.0, mode="nearest")
        return super().upsample(channels)

    def encode_time(self, time: NetworkTimes) -> Tensor:
        half = self.config.base_channels // 2
        angles = time_angles(time, half, half - 1)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def _published_names(self) -> dict[str, str]:
        names = {
            "time_mlp.0": "temb.dense.0",
            "time_mlp.2": "temb.dense.1",
            "stem": "conv_in",
            "middle.0.residual": "mid.block_1",
            "middle.0.attention": "mid.attn_1",
            "middle.1.residual": "mid.block_2",
            "output.norm": "norm_out",
            "output.conv": "conv_out",
        }
        for level in range(self.config.levels):
            coarsest_first = self.config.levels - 1 - level
            names |= self._level_names(f"encoder.{level}", f"down.{level}", "downsample")
            names |= self._level_names(f"decoder.{coarsest_first}", f"up.{level}", "upsample")
        return names

    def _level_names(self, ours: str, theirs: str, resample: str) -> dict[str, str]:
        names = {f"{ours}.resample": f"{theirs}.{resample}"}
        for block in range(self.config.blocks_per_level + 1):
            names[f"{ours}.stages.{block}.residual"] = f"{theirs}.block.{block}"
            names[f"{ours}.stages.{block}.attention"] = f"{theirs}.attn.{block}"
        return names


def build(config: Mapping[str, Any]) -> DdpmUNet:
    """Build the network with random weights."""
    return DdpmUNet(read_config(Config, config, FAMILY))
