"""The UNet of improved DDPM (CIFAR10; ImageNet 64, with learned variance).

Its marks: the embedding scales and shifts the second norm of the residual block, attention has
several heads whose query, key and value lie together head by head, GroupNorm's eps is 1e-5, halving
pads on all sides, and the time encoding is cosine first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ocm_core.networks._layers import (
    Attention,
    cosine_first_encoding,
    map_to_tokens,
    tokens_to_map,
    zeroed,
)
from ocm_core.networks._unet import SMALL_UNET, ResidualBlock, UNet, UNetConfig
from ocm_core.networks.config import (
    check_multiple,
    check_published,
    published_variance,
    read_config,
)
from ocm_core.shapes import Images, Labels, NetworkTimes

FAMILY = "iddpm_unet"
SMALL = SMALL_UNET
NEEDED = (
    "in_channels",
    "out_channels",
    "model_channels",
    "channel_mult",
    "num_res_blocks",
    "attention_resolutions",
    "num_heads",
    "dropout",
)
FIXED = {
    "conv_resample": True,
    "dims": 2,
    "use_checkpoint": False,
}
OPTIONAL = ("num_classes", "num_heads_upsample", "use_scale_shift_norm")


@dataclass(frozen=True, kw_only=True)
class Config(UNetConfig):
    """The sizes of a UNet of improved DDPM."""

    attention_heads: PositiveInt = 4
    decoder_attention_heads: PositiveInt | None = None  # on the way up; None: as on the way down
    scale_shift: bool = True  # False: the embedding is added before the norm
    num_classes: Annotated[int, Field(gt=0, le=10**6)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        heads = {"attention_heads": self.attention_heads}
        if self.decoder_attention_heads:
            heads["decoder_attention_heads"] = self.decoder_attention_heads
        for name, count in heads.items():
            check_multiple("base_channels", self.base_channels, name, count)

    @classmethod
    def from_published(cls, arguments: Mapping[str, Any]) -> Self:
        """Translate the constructor arguments of the published code."""
        check_published(arguments, NEEDED, FIXED, FAMILY, OPTIONAL)
        factors = [2**level for level in range(len(arguments["channel_mult"]))]
        attended = arguments["attention_resolutions"]
        values = {
            "in_channels": arguments["in_channels"],
            "base_channels": arguments["model_channels"],
            "channel_multipliers": arguments["channel_mult"],
            "blocks_per_level": arguments["num_res_blocks"],
            "attention_levels": [i for i, factor in enumerate(factors) if factor in attended],
            "attention_heads": arguments["num_heads"],
            "decoder_attention_heads": _heads(arguments.get("num_heads_upsample", -1)),
            "scale_shift": arguments.get("use_scale_shift_norm", True),
            "num_classes": arguments.get("num_classes"),
            "dropout": arguments["dropout"],
            "learns_variance": published_variance(arguments, "out_channels", FAMILY),
        }
        return read_config(cls, values, FAMILY)


class IddpmResidualBlock(ResidualBlock):
    """The embedding scales and shifts the second norm, unless the configuration says otherwise."""

    norm_eps = 1e-5
    published_names: ClassVar = {
        "norm_in": "in_layers.0",
        "conv_in": "in_layers.2",
        "embed": "emb_layers.1",
        "norm_out": "out_layers.0",
        "conv_out": "out_layers.3",
        "shortcut": "skip_connection",
    }


class IddpmAttentionBlock(nn.Module):
    """Several heads, whose query, key and value lie together head by head."""

    published_names: ClassVar = {"output": "proj_out"}

    def __init__(self, channels: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, channels, eps=IddpmResidualBlock.norm_eps)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.attend = Attention()
        self.output = zeroed(nn.Conv1d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        projected = self.qkv(self.norm(x).flatten(2))
        query, key, value = map_to_tokens(projected, self.heads).chunk(3, dim=-1)
        attended = tokens_to_map(self.attend(query, key, value), x.flatten(2).shape)
        update: Tensor = self.output(attended)
        return x + update.reshape(x.shape)


class IddpmUNet(UNet):
    """The UNet of improved DDPM."""

    config: Config
    residual_block = IddpmResidualBlock
    published_heads: ClassVar = {
        "simple": {"norm": "out2.0", "conv": "out2.2"},
        "complex": {"residual": "out2.0", "norm": "out2.1", "conv": "out2.3"},
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.conditional = config.num_classes is not None
        if config.num_classes is not None:
            self.label_table = nn.Embedding(config.num_classes, self.embedding_width)

    def embed(self, x: Images, time: NetworkTimes, label: Labels) -> Tensor:
        embedding = super().embed(x, time, label)
        return embedding if label is None else embedding + self.label_table(label)

    @property
    def scale_shift(self) -> bool:
        return self.config.scale_shift

    def attention(self, channels: int) -> nn.Module:
        return IddpmAttentionBlock(channels, self.config.attention_heads, self.config.norm_groups)

    def decoder_attention(self, channels: int) -> nn.Module:
        heads = self.config.decoder_attention_heads or self.config.attention_heads
        return IddpmAttentionBlock(channels, heads, self.config.norm_groups)

    def downsample(self, channels: int) -> nn.Module:
        return nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def encode_time(self, time: NetworkTimes) -> Tensor:
        return cosine_first_encoding(time, self.config.base_channels)

    def _published_names(self) -> dict[str, str]:
        """Number the published blocks through all levels; a halving is a block of its own."""
        names = {
            "time_mlp": "time_embed",
            "label_table": "label_emb",
            "stem": "input_blocks.0.0",
            "middle.0.residual": "middle_block.0",
            "middle.0.attention": "middle_block.1",
            "middle.1.residual": "middle_block.2",
            "output.norm": "out.0",
            "output.conv": "out.2",
        }
        blocks = self.config.blocks_per_level + 1
        for level in range(self.config.levels):
            first, last = level * blocks, (level + 1) * blocks - 1
            for block in range(blocks):
                down, up = f"input_blocks.{first + block + 1}", f"output_blocks.{first + block}"
                names |= _stage_names(f"encoder.{level}.stages.{block}", down)
                names |= _stage_names(f"decoder.{level}.stages.{block}", up)
            attends = self.config.levels - 1 - level in self.config.attention_levels
            names[f"encoder.{level}.resample"] = f"input_blocks.{last + 1}.0.op"
            names[f"decoder.{level}.resample"] = f"output_blocks.{last}.{2 if attends else 1}"
        return names


def _heads(upsample: int) -> int | None:
    return None if upsample == -1 else upsample


def _stage_names(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.residual": f"{theirs}.0", f"{ours}.attention": f"{theirs}.1"}


def build(config: Mapping[str, Any]) -> IddpmUNet:
    """Build the network with random weights."""
    return IddpmUNet(read_config(Config, config, FAMILY))
