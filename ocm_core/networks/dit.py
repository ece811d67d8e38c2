"""The diffusion transformer (ImageNet 256, in the latent space of an autoencoder).

Patches become tokens; time and class modulate every block through shift, scale and gate (adaLN).
The last class of the embedding table is the null class of classifier-free guidance.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.networks import _layers as layers
from ocm_core.networks import config as sizes
from ocm_core.shapes import Images, Labels, NetworkTimes

_SMALL_SIZES = {"image_size": 8, "width": 32, "depth": 2, "attention_heads": 4, "num_classes": 3}
SMALL = sizes.Small(8, _SMALL_SIZES)
TIME_ENCODING_WIDTH = 256


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a diffusion transformer."""

    image_size: sizes.Side
    patch_size: sizes.Side
    in_channels: sizes.Channels
    width: Annotated[int, Field(gt=0, le=2**14, multiple_of=4)]  # sine, cosine of two axes
    depth: sizes.Blocks
    attention_heads: PositiveInt
    num_classes: sizes.Classes
    mlp_ratio: Annotated[float, Field(gt=0, le=64)] = 4.0
    label_dropout: sizes.Probability = 0.1  # 0: no null class
    learns_variance: bool = False

    def __post_init__(self) -> None:
        sizes.check_multiple("image_size", self.image_size, "patch_size", self.patch_size)
        sizes.check_multiple("width", self.width, "attention_heads", self.attention_heads)


class SelfAttention(nn.Module):
    """Attention of all patches to all patches."""

    published_names: ClassVar = {"output": "proj"}

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = _drawn(nn.Linear(width, 3 * width))
        self.output = _drawn(nn.Linear(width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        split = self.qkv(tokens).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended: Tensor = self.output(layers.attend(query, key, value).transpose(1, 2).flatten(2))
        return attended


class DitBlock(nn.Module):
    """Attention and an MLP, each modulated by shift, scale and gate."""

    published_names: ClassVar = {
        "attention": "attn",
        "mlp.0": "mlp.fc1",
        "mlp.2": "mlp.fc2",
        "modulation": "adaLN_modulation.1",
    }

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, hidden = config.width, int(config.width * config.mlp_ratio)
        self.attention = SelfAttention(width, config.attention_heads)
        self.mlp = nn.Sequential(
            _drawn(nn.Linear(width, hidden)),
            nn.GELU(approximate="tanh"),
            _drawn(nn.Linear(hidden, width)),
        )
        # the block starts as the identity
        self.modulation = layers.zeroed(nn.Linear(width, 6 * width))

    def forward(self, tokens: Tensor, embedding: Tensor) -> Tensor:
        modulation = self.modulation(F.silu(embedding)).unsqueeze(1)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation.chunk(6, dim=-1)
        tokens = tokens + gate * self.attention(layers.modulated_norm(tokens, shift, scale))
        update: Tensor = mlp_gate * self.mlp(layers.modulated_norm(tokens, mlp_shift, mlp_scale))
        return tokens + update


class DiT(layers.CutNetwork):
    """The diffusion transformer."""

    head_kinds = ("adaln",)
    conditional = True
    published_names: ClassVar = {
        "patchify": "x_embedder.proj",
        "positions": "pos_embed",
        "time_mlp": "t_embedder.mlp",
        "label_table": "y_embedder.embedding_table",
        "output": "final_layer",
    }
    positions: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.out_channels_per_input = 2 if config.learns_variance else 1
        self.label_dropout = config.label_dropout
        self.null_label = config.num_classes if config.label_dropout > 0 else None
        patch = config.patch_size
        self.patchify = _drawn(nn.Conv2d(config.in_channels, config.width, patch, stride=patch))
        # A buffer, not a frozen parameter: no optimiser can ever pick it up.
        self.register_buffer("positions", position_table(config.image_size // patch, config.width))
        self.time_mlp = _drawn(layers.time_mlp(TIME_ENCODING_WIDTH, config.width), std=0.02)
        classes = config.num_classes + (self.null_label is not None)
        self.label_table = _drawn(nn.Embedding(classes, config.width), std=0.02)
        self.blocks = nn.ModuleList(DitBlock(config) for _ in range(config.depth))
        self.output = self._final_layer(config.in_channels * self.out_channels_per_input, "")

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        encoded = layers.cosine_first(time, TIME_ENCODING_WIDTH).to(x.dtype)
        embedding = self.time_mlp(encoded) + self.label_table(self.labels(x, label))
        hidden = self.patchify(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            hidden = block(hidden, embedding)
        return TrunkFeatures(hidden, embedding)

    def _final_layer(self, out_channels: int, prefix: str) -> layers.ModulatedOutput:
        width, patch = self.config.width, self.config.patch_size
        layer = layers.ModulatedOutput.untrained(width, patch, out_channels)
        names = {"modulation": "adaLN_modulation.1", "linear": "linear"}
        layer.published_names = {name: f"{prefix}{theirs}" for name, theirs in names.items()}
        return layer

    def head(self, kind: str) -> layers.ModulatedOutput:
        return self._final_layer(self.config.in_channels, "final_layer2.")


def position_table(side: int, width: int) -> Tensor:
    """Return sines and cosines of the column, then of the row, shaped (1, side², width)."""
    frequencies = 10_000 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    angles = torch.arange(side, dtype=torch.float64)[:, None] * frequencies
    axis = torch.cat([angles.sin(), angles.cos()], dim=-1)
    columns, rows = axis.repeat(side, 1), axis.repeat_interleave(side, dim=0)
    return torch.cat([columns, rows], dim=-1)[None].to(torch.get_default_dtype())


def _drawn(layer: layers.Layer, std: float | None = None) -> layers.Layer:
    """Draw weights from a normal with the given deviation, else Xavier uniform; biases are zero."""
    for parameter in layer.parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)
        elif std is None:
            nn.init.xavier_uniform_(parameter.flatten(1))
        else:
            nn.init.normal_(parameter, std=std)
    return layer


NETWORK = DiT
