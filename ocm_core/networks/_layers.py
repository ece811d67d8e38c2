"""Layers that the families really have in common: attention, time angles, zeroed last layers."""

import math
from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float
from torch import Tensor, nn

from ocm_core.shapes import NetworkTimes

Layer = TypeVar("Layer", bound=nn.Module)
Encodings = Float[Tensor, "batch width"]
HeadTokens = Float[Tensor, "batch head token width"]


class Attention(nn.Module):
    """softmax(q kᵀ / √width) v. The fused kernel has no forward-mode derivative, hence the flag."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = False

    def forward(self, query: HeadTokens, key: HeadTokens, value: HeadTokens) -> HeadTokens:
        if self.fused:
            return F.scaled_dot_product_attention(query, key, value)
        scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
        at_least_single = torch.promote_types(scores.dtype, torch.float32)
        return scores.softmax(dim=-1, dtype=at_least_single).to(value.dtype) @ value


def set_fused_attention(network: nn.Module, on: bool) -> None:
    for module in network.modules():
        if isinstance(module, Attention):
            module.fused = on


def map_to_tokens(pixels: Tensor, heads: int) -> HeadTokens:
    """(batch, channel, height, width), or already flat, to tokens; heads are outermost."""
    batch, channels = pixels.shape[:2]
    return pixels.reshape(batch, heads, channels // heads, -1).transpose(-2, -1)


def tokens_to_map(tokens: HeadTokens, shape: torch.Size) -> Tensor:
    return tokens.transpose(-2, -1).reshape(shape)


def time_angles(time: NetworkTimes, half: int, steps: int) -> Encodings:
    """time · 10000^(-i / steps), i < half; never below single precision, whatever the network's."""
    dtype = torch.promote_types(time.dtype, torch.float32)
    indices = torch.arange(half, device=time.device, dtype=dtype)
    return time[:, None].to(dtype) * torch.exp(-math.log(10_000) / steps * indices)


def cosine_first_encoding(time: NetworkTimes, width: int) -> Encodings:
    angles = time_angles(time, width // 2, width // 2)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def time_mlp(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width))


def zeroed(layer: Layer) -> Layer:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer
