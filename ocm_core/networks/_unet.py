"""The graph that both UNet families share; a family supplies the parts.

Levels of residual blocks (with attention at some of them) go down by halving and come up again by
doubling, and every state on the way down is concatenated to its counterpart on the way up. What
differs between the families (norms, blocks, padding, time encoding, names) is in their own files.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import time_mlp, zeroed
from ocm_core.networks.config import (
    MOST_BLOCKS_PER_LEVEL,
    MOST_LEVELS,
    Channels,
    Multiplier,
    Probability,
    Small,
    check_multiple,
    refuse_sizes,
)
from ocm_core.shapes import Images, Labels, NetworkTimes

MakeAttention = Callable[[int], nn.Module]  # of so many channels
SMALL_UNET = Small(
    side=16,
    config={
        "base_channels": 8,
        "channel_multipliers": [1, 2],
        "blocks_per_level": 1,
        "attention_levels": [1],
        "norm_groups": 4,
    },
)


@dataclass(frozen=True, kw_only=True)
class UNetConfig:
    """The sizes of a UNet."""

    in_channels: Channels
    base_channels: Annotated[int, Field(ge=4, le=2**12, multiple_of=2)]
    channel_multipliers: Annotated[  # finest first
        tuple[Multiplier, ...], Field(min_length=1, max_length=MOST_LEVELS)
    ]
    blocks_per_level: Annotated[int, Field(gt=0, le=MOST_BLOCKS_PER_LEVEL)]
    attention_levels: tuple[int, ...]  # level i works at 2^-i of the resolution
    dropout: Probability = 0.0
    norm_groups: PositiveInt = 32
    learns_variance: bool = False

    def __post_init__(self) -> None:
        check_multiple("base_channels", self.base_channels, "norm_groups", self.norm_groups)
        if not set(self.attention_levels) <= set(range(self.levels)):
            raise OcmError(
                f"attention_levels={list(self.attention_levels)}: channel_multipliers gives"
                f" levels 0 to {self.levels - 1} only"
            )

    @property
    def levels(self) -> int:
        return len(self.channel_multipliers)

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(self.base_channels * multiplier for multiplier in self.channel_multipliers)


class ResidualBlock(nn.Module):
    """Norm, SiLU, convolution, twice; the embedding shifts (and scales) the second norm."""

    norm_eps: ClassVar[float]
    published_names: ClassVar[Mapping[str, str]]

    def __init__(
        self,
        channels: tuple[int, int],
        embedding: int,
        groups: int,
        dropout: float,
        scale_shift: bool,
    ) -> None:
        super().__init__()
        inputs, outputs = channels
        self.scale_shift = scale_shift
        self.norm_in = nn.GroupNorm(groups, inputs, eps=self.norm_eps)
        self.conv_in = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.embed = nn.Linear(embedding, (2 if scale_shift else 1) * outputs)
        self.norm_out = nn.GroupNorm(groups, outputs, eps=self.norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.conv_out = zeroed(nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        hidden = self.conv_in(F.silu(self.norm_in(x)))
        embedded = self.embed(F.silu(embedding))[:, :, None, None]
        if self.scale_shift:
            scale, shift = embedded.chunk(2, dim=1)
            hidden = self.norm_out(hidden) * (1 + scale) + shift
        else:
            hidden = self.norm_out(hidden + embedded)
        hidden = self.conv_out(self.dropout(F.silu(hidden)))
        updated: Tensor = self.shortcut(x) + hidden
        return updated


class UNetLevel(nn.Module):
    """A residual block, and attention after it at some levels."""

    def __init__(self, residual: nn.Module, attention: nn.Module | None) -> None:
        super().__init__()
        self.residual = residual
        self.attention = attention

    def forward(self, hidden: Tensor, embedding: Tensor, skip: Tensor | None = None) -> Tensor:
        if skip is not None:  # joined here, so that recomputing need not keep the joined map
            hidden = torch.cat([hidden, skip], dim=1)
        hidden = self.residual(hidden, embedding)
        return hidden if self.attention is None else self.attention(hidden)


class Level(nn.Module):
    """The blocks of one resolution, and the layer that changes it."""

    def __init__(self, stages: Sequence[UNetLevel], resample: nn.Module | None) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.resample = resample


class DownLevel(Level):
    """A level on the way down."""

    def forward(self, hidden: Tensor, embedding: Tensor) -> list[Tensor]:
        """Return every state on the way; the next level continues from the last."""
        states = []
        for stage in self.stages:
            hidden = stage(hidden, embedding)
            states.append(hidden)
        if self.resample is not None:
            states.append(self.resample(hidden))
        return states


class UpLevel(Level):
    """A level on the way up."""

    def forward(self, hidden: Tensor, embedding: Tensor, skips: list[Tensor]) -> Tensor:
        """Join skips, which are taken off the end of the list."""
        for stage in self.stages:
            hidden = stage(hidden, embedding, skips.pop())
        return hidden if self.resample is None else self.resample(hidden)


class Upsample(nn.Module):
    """Doubling by copies, and a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, hidden: Tensor) -> Tensor:
        doubled: Tensor = self.conv(F.interpolate(hidden, scale_factor=2.0, mode="nearest"))
        return doubled


class OutputLayer(nn.Module):
    """Norm, SiLU, convolution; the network's last layer, and a head when given its own copy."""

    def __init__(self, norm: nn.Module, conv: nn.Module, residual: nn.Module | None = None) -> None:
        super().__init__()
        self.residual = residual
        self.norm = norm
        self.conv = conv
        self.published_names: Mapping[str, str] = {}

    def forward(self, features: TrunkFeatures) -> Tensor:
        hidden, embedding = features
        if self.residual is not None:
            hidden = self.residual(hidden, embedding)
        image: Tensor = self.conv(F.silu(self.norm(hidden)))
        return image


class UNet(ScoreNetwork):
    """Encoder, middle and decoder; a family supplies blocks, attention and the time encoding."""

    head_kinds = ("simple", "complex")
    residual_block: ClassVar[type[ResidualBlock]]
    published_heads: ClassVar[Mapping[str, Mapping[str, str]]]

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        self.config = config
        self.out_channels_per_input = 2 if config.learns_variance else 1
        self.embedding_width = 4 * config.base_channels
        self.time_mlp = time_mlp(config.base_channels, self.embedding_width)
        self.stem = nn.Conv2d(config.in_channels, config.base_channels, 3, padding=1)
        self.encoder, skips = self._encoder()
        self.middle = self._middle(config.widths[-1])
        self.decoder = self._decoder(config.widths[-1], skips)
        self.output = self._output(config.in_channels * self.out_channels_per_input)
        self.published_names = self._published_names()

    def norm(self, channels: int) -> nn.Module:
        return nn.GroupNorm(self.config.norm_groups, channels, eps=self.residual_block.norm_eps)

    def residual(self, in_channels: int, out_channels: int) -> ResidualBlock:
        return self.residual_block(
            (in_channels, out_channels),
            self.embedding_width,
            self.config.norm_groups,
            self.config.dropout,
            self.scale_shift,
        )

    @property
    def scale_shift(self) -> bool:
        """Whether the embedding also scales the second norm of a residual block."""
        return False

    @abstractmethod
    def attention(self, channels: int) -> nn.Module: ...

    def decoder_attention(self, channels: int) -> nn.Module:
        return self.attention(channels)

    def upsample(self, channels: int) -> nn.Module:
        return Upsample(channels)

    @abstractmethod
    def downsample(self, channels: int) -> nn.Module: ...

    @abstractmethod
    def encode_time(self, time: NetworkTimes) -> Tensor: ...

    @abstractmethod
    def _published_names(self) -> dict[str, str]: ...

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        self._check_input(x, label)
        embedding = self.embed(x, time, label)
        skips = [self.stem(x)]
        for level in self.encoder:
            skips += level(skips[-1], embedding)
        hidden = skips[-1]
        for stage in self.middle:
            hidden = stage(hidden, embedding)
        for level in self.decoder:
            hidden = level(hidden, embedding, skips)
        return TrunkFeatures(hidden, embedding)

    def embed(self, x: Images, time: NetworkTimes, label: Labels) -> Tensor:
        embedding: Tensor = self.time_mlp(self.encode_time(time).to(x.dtype))
        return embedding

    def readout(self, features: TrunkFeatures) -> Images:
        image: Tensor = self.output(features)
        return image

    def _check_input(self, x: Images, label: Labels) -> None:
        if label is not None and not self.conditional:
            raise OcmError(f"{type(self).__name__} is unconditional; pass no label")
        if label is None and self.conditional:
            raise OcmError(f"{type(self).__name__} has no null class; pass a label")
        factor = 2 ** (self.config.levels - 1)
        if x.shape[-2] % factor or x.shape[-1] % factor:
            raise OcmError(
                f"image size {tuple(x.shape[-2:])} is not a multiple of {factor}, which"
                f" {self.config.levels} levels (channel_multipliers) need"
            )

    def _stage(
        self, in_channels: int, out_channels: int, level: int, attention: MakeAttention
    ) -> UNetLevel:
        attends = level in self.config.attention_levels
        made = attention(out_channels) if attends else None
        return UNetLevel(self.residual(in_channels, out_channels), made)

    def _encoder(self) -> tuple[nn.ModuleList, list[int]]:
        """Return the levels, finest first, and the width of every skip connection in order."""
        channels = self.config.base_channels
        levels, skips = nn.ModuleList(), [channels]
        for level, width in enumerate(self.config.widths):
            inputs = [channels] + [width] * (self.config.blocks_per_level - 1)
            stages = [self._stage(before, width, level, self.attention) for before in inputs]
            coarsest = level == self.config.levels - 1
            levels.append(DownLevel(stages, None if coarsest else self.downsample(width)))
            skips += [width] * (self.config.blocks_per_level + (not coarsest))
            channels = width
        return levels, skips

    def _middle(self, width: int) -> nn.ModuleList:
        attending = UNetLevel(self.residual(width, width), self.attention(width))
        return nn.ModuleList([attending, UNetLevel(self.residual(width, width), None)])

    def _decoder(self, channels: int, skips: list[int]) -> nn.ModuleList:
        """Return the levels, coarsest first; each has one block more than on the way down."""
        levels = nn.ModuleList()
        for level, width in reversed(list(enumerate(self.config.widths))):
            inputs = [channels] + [width] * self.config.blocks_per_level
            stages = [
                self._stage(before + skips.pop(), width, level, self.decoder_attention)
                for before in inputs
            ]
            levels.append(UpLevel(stages, self.upsample(width) if level else None))
            channels = width
        return levels

    def _output(self, out_channels: int, residual: nn.Module | None = None) -> OutputLayer:
        width = self.config.widths[0]
        conv = zeroed(nn.Conv2d(width, out_channels, 3, padding=1))
        return OutputLayer(self.norm(width), conv, residual)

    def _build_head(self, kind: str, **sizes: int) -> OutputLayer:
        refuse_sizes(kind, sizes)
        width = self.config.widths[0]
        residual = self.residual(width, width) if kind == "complex" else None
        head = self._output(self.config.in_channels, residual)
        head.published_names = self.published_heads[kind]
        return head
