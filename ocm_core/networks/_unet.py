"""The graph that both UNet families share: levels go down by halving and come up by doubling.

Every state on the way down is concatenated to its counterpart on the way up.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks import config as sizes
from ocm_core.networks._layers import CutNetwork, time_mlp, zeroed
from ocm_core.shapes import Images, Labels, NetworkTimes

LAYERS = (  # that both families have, with names of their own
    *("stem", "middle.0.residual", "middle.0.attention", "middle.1.residual"),
    *("output.norm", "output.conv"),
)
BLOCK_LAYERS = ("norm_in", "conv_in", "embed", "norm_out", "conv_out", "shortcut")
_SMALL_LEVELS = {"channel_multipliers": [1, 2], "blocks_per_level": 1, "attention_levels": [1]}
SMALL_UNET = sizes.Small(16, {"base_channels": 8, **_SMALL_LEVELS, "norm_groups": 4})


@dataclass(frozen=True, kw_only=True)
class UNetConfig:
    """The sizes of a UNet."""

    in_channels: sizes.Channels
    base_channels: Annotated[int, Field(ge=4, le=2**12, multiple_of=2)]
    channel_multipliers: Annotated[tuple[sizes.Multiplier, ...], sizes.Levels]  # finest first
    blocks_per_level: sizes.BlocksPerLevel
    attention_levels: tuple[int, ...]  # level i works at 2^-i of the resolution
    dropout: sizes.Probability = 0.0
    norm_groups: PositiveInt = 32
    learns_variance: bool = False

    def __post_init__(self) -> None:
        sizes.check_multiple("base_channels", self.base_channels, "norm_groups", self.norm_groups)
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

    def __init__(self, unet: "UNet", inputs: int, outputs: int) -> None:
        super().__init__()
        groups, eps = unet.config.norm_groups, unet.norm_eps
        self.scale_shift = unet.scale_shift
        self.published_names = dict(zip(BLOCK_LAYERS, unet.block_names, strict=True))
        self.norm_in = nn.GroupNorm(groups, inputs, eps=eps)
        self.conv_in = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.embed = nn.Linear(unet.embedding_width, (1 + unet.scale_shift) * outputs)
        self.norm_out = nn.GroupNorm(groups, outputs, eps=eps)
        self.dropout = nn.Dropout(unet.config.dropout)
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
        self.residual, self.attention = residual, attention

    def forward(self, hidden: Tensor, embedding: Tensor, skip: Tensor | None = None) -> Tensor:
        if skip is not None:  # joined here, so that recomputing need not keep the joined map
            hidden = torch.cat([hidden, skip], dim=1)
        hidden = self.residual(hidden, embedding)
        return hidden if self.attention is None else self.attention(hidden)


class Level(nn.Module):
    """The blocks of one resolution, and the layer that halves or doubles it."""

    def __init__(self, stages: Sequence[UNetLevel], resample: nn.Module | None) -> None:
        super().__init__()
        self.stages, self.resample = nn.ModuleList(stages), resample


class OutputLayer(nn.Module):
    """Norm, SiLU, convolution; the network's last layer, and a head when given its own copy."""

    def __init__(self, norm: nn.Module, conv: nn.Module, residual: nn.Module | None = None) -> None:
        super().__init__()
        self.residual, self.norm, self.conv = residual, norm, conv
        self.published_names: Mapping[str, str] = {}

    def inputs(self, features: TrunkFeatures) -> Tensor:
        """Return the map that the convolution reads."""
        hidden, embedding = features
        if self.residual is not None:
            hidden = self.residual(hidden, embedding)
        return F.silu(self.norm(hidden))

    def forward(self, features: TrunkFeatures) -> Tensor:
        image: Tensor = self.conv(self.inputs(features))
        return image


class UNet(CutNetwork):
    """Encoder, middle and decoder; a family supplies blocks, attention and the time encoding."""

    head_kinds = ("simple", "complex")
    norm_eps: ClassVar[float]
    block_names: ClassVar[tuple[str, ...]]  # the published ones of `BLOCK_LAYERS`
    published_heads: ClassVar[Mapping[str, Mapping[str, str]]]

    def __init__(self, config: UNetConfig, scale_shift: bool = False) -> None:
        super().__init__()
        self.config, self.scale_shift = config, scale_shift
        self.out_channels_per_input = 2 if config.learns_variance else 1
        self.embedding_width = 4 * config.base_channels
        self.time_mlp = time_mlp(config.base_channels, self.embedding_width)
        self.stem = nn.Conv2d(config.in_channels, config.base_channels, 3, padding=1)
        self.encoder, skips = self._encoder()
        width = config.widths[-1]
        attending = UNetLevel(ResidualBlock(self, width, width), self.attention(width))
        self.middle = nn.ModuleList([attending, UNetLevel(ResidualBlock(self, width, width), None)])
        self.decoder = self._decoder(width, skips)
        self.output = self._output(config.in_channels * self.out_channels_per_input)
        self.published_names = self._published_names()

    @abstractmethod
    def attention(self, channels: int, up: bool = False) -> nn.Module: ...

    @abstractmethod
    def downsample(self, channels: int) -> nn.Module: ...

    def upsample(self, channels: int) -> nn.Module:
        copies = nn.Upsample(scale_factor=2.0, mode="nearest")
        conv = nn.Conv2d(channels, channels, 3, padding=1)
        return nn.Sequential(OrderedDict(copies=copies, conv=conv))

    @abstractmethod
    def encode_time(self, time: NetworkTimes) -> Tensor: ...

    @abstractmethod
    def _published_names(self) -> dict[str, str]: ...

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        factor = 2 ** (self.config.levels - 1)
        if x.shape[-2] % factor or x.shape[-1] % factor:
            raise OcmError(
                f"image size {tuple(x.shape[-2:])} is not a multiple of {factor}, which"
                f" {self.config.levels} levels (channel_multipliers) need"
            )
        embedding = self.embed(x, time, self.labels(x, label))
        skips = [self.stem(x)]
        for level in cast(Iterable[Level], self.encoder):
            for stage in level.stages:
                skips.append(stage(skips[-1], embedding))
            if level.resample is not None:
                skips.append(level.resample(skips[-1]))
        hidden = skips[-1]
        for stage in self.middle:
            hidden = stage(hidden, embedding)
        for level in cast(Iterable[Level], self.decoder):
            for stage in level.stages:
                hidden = stage(hidden, embedding, skips.pop())
            hidden = hidden if level.resample is None else level.resample(hidden)
        return TrunkFeatures(hidden, embedding)

    def embed(self, x: Images, time: NetworkTimes, label: Labels) -> Tensor:
        embedding: Tensor = self.time_mlp(self.encode_time(time).to(x.dtype))
        return embedding

    def _stage(self, inputs: int, level: int, up: bool) -> UNetLevel:
        width, attends = self.config.widths[level], level in self.config.attention_levels
        attention = self.attention(width, up) if attends else None
        return UNetLevel(ResidualBlock(self, inputs, width), attention)

    def _encoder(self) -> tuple[nn.ModuleList, list[int]]:
        """Return the levels, finest first, and the width of every skip connection in order."""
        channels = self.config.base_channels
        levels, skips = nn.ModuleList(), [channels]
        for level, width in enumerate(self.config.widths):
            inputs = [channels] + [width] * (self.config.blocks_per_level - 1)
            stages = [self._stage(before, level, up=False) for before in inputs]
            coarsest = level == self.config.levels - 1
            levels.append(Level(stages, None if coarsest else self.downsample(width)))
            skips += [width] * (self.config.blocks_per_level + (not coarsest))
            channels = width
        return levels, skips

    def _decoder(self, channels: int, skips: list[int]) -> nn.ModuleList:
        """Return the levels, coarsest first; each has one block more than on the way down."""
        levels = nn.ModuleList()
        for level, width in reversed(list(enumerate(self.config.widths))):
            inputs = [channels] + [width] * self.config.blocks_per_level
            stages = [self._stage(before + skips.pop(), level, up=True) for before in inputs]
            levels.append(Level(stages, self.upsample(width) if level else None))
            channels = width
        return levels

    def _output(self, out_channels: int, residual: nn.Module | None = None) -> OutputLayer:
        width = self.config.widths[0]
        conv = zeroed(nn.Conv2d(width, out_channels, 3, padding=1))
        norm = nn.GroupNorm(self.config.norm_groups, width, eps=self.norm_eps)
        return OutputLayer(norm, conv, residual)

    def head(self, kind: str) -> OutputLayer:
        width = self.config.widths[0]
        residual = ResidualBlock(self, width, width) if kind == "complex" else None
        head = self._output(self.config.in_channels, residual)
        head.published_names = self.published_heads[kind]
        return head
