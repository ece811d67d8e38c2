"""The UNet of improved DDPM (CIFAR10; ImageNet 64, with learned variance).

Its marks: the embedding scales and shifts the second norm of the residual block, attention has
several heads whose query, key and value lie together head by head, GroupNorm's eps is 1e-5, halving
pads on all sides, and the time encoding is cosine first.
"""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveInt
from torch import Tensor, nn

from ocm_core.networks._layers import attend, cosine_first, map_to_tokens, tokens_to_map, zeroed
from ocm_core.networks._unet import LAYERS, SMALL_UNET, UNet, UNetConfig
from ocm_core.networks.config import Classes, check_multiple
from ocm_core.shapes import Images, Labels, NetworkTimes

SMALL = SMALL_UNET
EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Config(UNetConfig):
    """The sizes of a UNet of improved DDPM."""

    attention_heads: PositiveInt = 4
    decoder_attention_heads: PositiveInt | None = None  # on the way up; None: as on the way down
    scale_shift: bool = True  # False: the embedding is added before the norm
    num_classes: Classes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("attention_heads", "decoder_attention_heads"):
            check_multiple("base_channels", self.base_channels, name, getattr(self, name) or 1)


class IddpmAttentionBlock(nn.Module):
    """Several heads, whose query, key and value lie together head by head."""

    published_names: ClassVar = {"output": "proj_out"}

    def __init__(self, channels: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, channels, eps=EPS)
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.output = zeroed(nn.Conv1d(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        projected = self.qkv(self.norm(x).flatten(2))
        query, key, value = map_to_tokens(projected, self.heads).chunk(3, dim=-1)
        attended = tokens_to_map(attend(query, key, value), x.flatten(2).shape)
        update: Tensor = self.output(attended)
        return x + update.reshape(x.shape)


class IddpmUNet(UNet):
    """The UNet of improved DDPM."""

    config: Config
    norm_eps = EPS
    block_names = (
        *("in_layers.0", "in_layers.2", "emb_layers.1"),
        *("out_layers.0", "out_layers.3", "skip_connection"),
    )
    published_heads: ClassVar = {
        "simple": {"norm": "out2.0", "conv": "out2.2"},
        "complex": {"residual": "out2.0", "norm": "out2.1", "conv": "out2.3"},
    }

    def __init__(self, config: Config) -> None:
        super().__init__(config, config.scale_shift)
        self.conditional = config.num_classes is not None
        if config.num_classes is not None:
            self.label_table = nn.Embedding(config.num_classes, self.embedding_width)

    def embed(self, x: Images, time: NetworkTimes, label: Labels) -> Tensor:
        embedding = super().embed(x, time, label)
        return embedding if label is None else embedding + self.label_table(label)

    def attention(self, channels: int, up: bool = False) -> nn.Module:
        heads = self.config.attention_heads
        heads = self.config.decoder_attention_heads or heads if up else heads
        return IddpmAttentionBlock(channels, heads, self.config.norm_groups)

    def downsample(self, channels: int) -> nn.Module:
        return nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def encode_time(self, time: NetworkTimes) -> Tensor:
        return cosine_first(time, self.config.base_channels)

    def _published_names(self) -> dict[str, str]:
        """Number the published blocks through all levels; a halving is a block of its own."""
        theirs = ("input_blocks.0.0", *(f"middle_block.{i}" for i in range(3)), "out.0", "out.2")
        names = dict(zip(LAYERS, theirs, strict=True))
        names |= {"time_mlp": "time_embed", "label_table": "label_emb"}
        blocks = self.config.blocks_per_level + 1
        for level in range(self.config.levels):
            first, last = level * blocks, (level + 1) * blocks - 1
            for block in range(blocks):
                down, up = f"input_blocks.{first + block + 1}", f"output_blocks.{first + block}"
                for ours, side in ((f"encoder.{level}", down), (f"decoder.{level}", up)):
                    names[f"{ours}.stages.{block}.residual"] = f"{side}.0"
                    names[f"{ours}.stages.{block}.attention"] = f"{side}.1"
            attends = self.config.levels - 1 - level in self.config.attention_levels
            names[f"encoder.{level}.resample"] = f"input_blocks.{last + 1}.0.op"
            names[f"decoder.{level}.resample"] = f"output_blocks.{last}.{2 if attends else 1}"
        return names


NETWORK = IddpmUNet
