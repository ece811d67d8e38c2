"""Layers and a base class that several families share: attention, time encodings, output layers."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures, last_layer
from ocm_core.errors import OcmError
from ocm_core.shapes import Images, Labels, NetworkTimes

Layer = TypeVar("Layer", bound=nn.Module)
Encodings = Float[Tensor, "batch width"]
HeadTokens = Float[Tensor, "batch head token width"]


class CutNetwork(ScoreNetwork):
    """A network that is cut before its last layer `output`; a head is one more layer like it."""

    output: nn.Module

    def readout(self, features: TrunkFeatures) -> Images:
        image: Tensor = self.output(features)
        return image

    def labels(self, x: Images, label: Labels) -> Labels:
        """Return the labels, or the null class for every image; refuse what does not fit."""
        if label is not None and not self.conditional:
            raise OcmError(f"{type(self).__name__} is unconditional; pass no label")
        if label is not None or not self.conditional:
            return label
        if self.null_label is None:
            raise OcmError(f"{type(self).__name__} has no null class; pass a label")
        return torch.full((len(x),), self.null_label, device=x.device)

    @abstractmethod
    def head(self, kind: str) -> nn.Module:
        """Make a head that predicts zero."""

    def _build_head(self, kind: str, outputs: int = 0, **sizes: int) -> nn.Module:
        if sizes:
            raise OcmError(
                f"head kind {kind!r} takes its size from the network; leave out {', '.join(sizes)}"
            )
        head = self.head(kind)
        return PooledHead(head, outputs) if outputs else head


class PooledHead(nn.Module):
    """A linear layer to all outputs, after mean and mean square of a head's inputs over positions.

    A head shares its weights over positions, and cannot tell the vectors of a basis apart.
    """

    def __init__(self, head: Any, outputs: int) -> None:
        super().__init__()
        name, layer = last_layer(head)
        head.set_submodule(name, nn.Identity())
        self.reader, self.pooled = head, zeroed(nn.Linear(2 * layer.weight.shape[1], outputs))

    def forward(self, features: TrunkFeatures) -> Tensor:
        inputs = self.reader.inputs(features)
        rows = inputs if inputs.ndim == 3 else inputs.flatten(2).mT
        outputs: Tensor = self.pooled(torch.cat([rows.mean(1), rows.square().mean(1)], dim=1))
        return outputs


class ModulatedOutput(nn.Module):
    """Norm, shift and scale by the embedding, a linear map, and patches back to an image."""

    def __init__(self, modulation: Any, linear: nn.Linear, patch_size: int) -> None:
        super().__init__()
        self.modulation, self.linear, self.patch_size = modulation, linear, patch_size
        self.published_names: Mapping[str, str] = {}

    @classmethod
    def untrained(cls, width: int, patch_size: int, out_channels: int) -> Self:
        """Make a layer that predicts zero."""
        modulation = zeroed(nn.Linear(width, 2 * width))
        return cls(modulation, zeroed(nn.Linear(width, patch_size**2 * out_channels)), patch_size)

    def inputs(self, features: TrunkFeatures) -> Tensor:
        """Return the tokens that the linear map reads."""
        tokens, embedding = features
        return modulated_norm(tokens, *self.shift_and_scale(embedding))

    def shift_and_scale(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the embedding does to normalised tokens."""
        shift, scale = self.modulation(F.silu(embedding)).unsqueeze(1).chunk(2, dim=-1)
        return shift, scale

    def forward(self, features: TrunkFeatures) -> Tensor:
        side = round(features.hidden.shape[1] ** 0.5)
        return self.image(self.linear(self.inputs(features)), side)

    def image(self, patches: Tensor, side: int) -> Images:
        """Put `side` × `side` patches together, whose channels are innermost."""
        patch = self.patch_size
        grid = patches.reshape(len(patches), side, side, patch, patch, -1)
        return grid.permute(0, 5, 1, 3, 2, 4).reshape(len(grid), -1, side * patch, side * patch)


def modulated_norm(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Normalise tokens, then scale and shift them (adaLN)."""
    return F.layer_norm(tokens, tokens.shape[-1:], eps=1e-6) * (1 + scale) + shift


def attend(query: HeadTokens, key: HeadTokens, value: HeadTokens) -> HeadTokens:
    """Return softmax(q kᵀ / √width) v; fused kernels have no forward-mode derivative."""
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    at_least_single = torch.promote_types(scores.dtype, torch.float32)
    return scores.softmax(dim=-1, dtype=at_least_single).to(value.dtype) @ value


def map_to_tokens(pixels: Tensor, heads: int) -> HeadTokens:
    """Turn (batch, channel, height, width), flat or not, into tokens; heads are outermost."""
    batch, channels = pixels.shape[:2]
    return pixels.reshape(batch, heads, channels // heads, -1).transpose(-2, -1)


def tokens_to_map(tokens: HeadTokens, shape: torch.Size) -> Tensor:
    """Invert `map_to_tokens`."""
    return tokens.transpose(-2, -1).reshape(shape)


def table_at(table: Float[Tensor, " time"], time: NetworkTimes) -> Float[Tensor, " batch"]:
    """Return `table[t]`, linear between timesteps."""
    low, high = time.floor().long(), time.ceil().long()
    return torch.lerp(table[low], table[high], (time - low).to(table.dtype))


def time_angles(time: NetworkTimes, half: int, steps: int) -> Encodings:
    """Return time · 10000^(-i / steps) for i < half, never below single precision."""
    dtype = torch.promote_types(time.dtype, torch.float32)
    indices = torch.arange(half, device=time.device, dtype=dtype)
    return time[:, None].to(dtype) * torch.exp(-math.log(10_000) / steps * indices)


def cosine_first(time: NetworkTimes, width: int) -> Encodings:
    """Encode the time by cosines, then sines."""
    angles = time_angles(time, width // 2, width // 2)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def time_mlp(inputs: int, width: int) -> nn.Sequential:
    """Make the two layers that turn an encoded time into an embedding."""
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width))


def zeroed(layer: Layer) -> Layer:
    """Set all parameters of a layer to zero and return it."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer
