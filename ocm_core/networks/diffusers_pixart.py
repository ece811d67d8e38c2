"""diffusers' `PixArtTransformer2DModel`, as in PixArt-α and PixArt-Σ."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.networks.diffusers_transformer import DiffusersTransformer
from ocm_core.shapes import Images, Labels, NetworkTimes

PIXELS = 8  # along the side of a latent: its autoencoders are those of Stable Diffusion


class DiffusersPixArt(DiffusersTransformer):
    """Its prompts are T5's tokens with a mask; the model for 1024 pixels is told the size, too."""

    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        sizes: dict[str, Tensor | None] = {"resolution": None, "aspect_ratio": None}
        if self.trunk.use_additional_conditions:
            resolution = x.new_full((len(x), 2), PIXELS * x.shape[-1])
            sizes = {"resolution": resolution, "aspect_ratio": x.new_ones(len(x), 1)}
        return {**super().arguments(x, time, label), "added_cond_kwargs": sizes}

    def features_of(self, last: tuple[Tensor, ...], given: Mapping[str, Any]) -> TrunkFeatures:
        (hidden, *_), sizes = last, given["added_cond_kwargs"]
        how = {"batch_size": len(hidden), "hidden_dtype": hidden.dtype}
        return TrunkFeatures(hidden, self.trunk.adaln_single.emb(given["timestep"], **sizes, **how))


ADAPTER = DiffusersPixArt
