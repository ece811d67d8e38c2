"""diffusers' `FluxTransformer2DModel`: patches of 2×2 latents are packed into its channels."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.networks.diffusers_transformer import DiffusersTransformer, ScaleFirstOutput
from ocm_core.shapes import Images, Labels, NetworkTimes

SIDE = 2  # of a patch


class PackedOutput(ScaleFirstOutput):
    """Its patches have their channels outside, as they are packed."""

    def image(self, patches: Tensor, side: int) -> Images:
        return unpacked(patches, side)


class DiffusersFlux(DiffusersTransformer):
    """Its prompts are T5's tokens and a pooled vector; positions of patches are told beside x."""

    output_kind = PackedOutput
    patch_size = SIDE

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.in_channels //= SIDE**2

    def obstacles(self, model: Any) -> Iterator[str]:
        yield from super().obstacles(model)
        channels, patch = model.config["in_channels"], model.config["patch_size"]
        if channels % SIDE**2 or patch != 1:
            packs = f"latents that are packed {SIDE}×{SIDE}, and patch_size=1"
            yield f"in_channels={channels}, patch_size={patch}; expected {packs}"

    def check(self, x: Images) -> None:
        channels, rows, columns = x.shape[1:]
        if channels != self.in_channels or rows != columns or rows % SIDE:
            expected = f"{self.in_channels} channels and even sides of the same length"
            raise OcmError(f"items of shape {tuple(x.shape[1:])}: this model takes {expected}")

    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        side, texts = x.shape[-1] // SIDE, self.texts(x, label)
        where = torch.arange(side, device=x.device, dtype=x.dtype)
        grid = torch.cartesian_prod(where.new_zeros(1), where, where)
        origin = grid.new_zeros(texts["encoder_hidden_states"].shape[1], 3)
        given = {"timestep": time / 1000, "img_ids": grid, "txt_ids": origin}
        return {"hidden_states": packed(x), **given, **texts}

    def unpacked(self, output: Tensor) -> Images:
        return unpacked(output, round(output.shape[1] ** 0.5))


def packed(x: Images) -> Tensor:
    """Return 2×2 patches as tokens, channels outermost."""
    return torch.pixel_unshuffle(x, SIDE).flatten(2).mT.contiguous()


def unpacked(patches: Tensor, side: int) -> Images:
    """Invert `packed`, for a square of `side` patches."""
    return torch.pixel_shuffle(patches.mT.reshape(len(patches), -1, side, side), SIDE).contiguous()


ADAPTER = DiffusersFlux
