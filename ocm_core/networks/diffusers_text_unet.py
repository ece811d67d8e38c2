"""diffusers' `UNet2DConditionModel`, as Stable Diffusion has it: a UNet that also reads a text.

Its labels are rows of a table of embeddings (`Prompts` in diffusers.py), which it has to be given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks.diffusers_unet import DiffusersUNet
from ocm_core.shapes import Images, Labels, NetworkTimes

from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel  # isort: skip

DROPPED = 0.1  # of the captions in training, as Stable Diffusion was trained
OTHER_CONDITIONS = (
    *("addition_embed_type", "encoder_hid_dim_type", "num_class_embeds"),
    *("time_embedding_act_fn", "timestep_post_act", "time_cond_proj_dim"),
)


class DiffusersTextUNet(DiffusersUNet):
    """Stable Diffusion's UNet, whose labels are prompts."""

    model_kind = UNet2DConditionModel
    label_dropout = DROPPED

    def __init__(self, model: UNet2DConditionModel) -> None:
        super().__init__(model)
        self.conditional = True
        self.prompts: nn.Module | None = None

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        self._check_shape(x)
        (hidden,) = self.trunk(x, time, self.context(x, label), return_dict=False)
        return TrunkFeatures(hidden.contiguous(), self.embedding(time, None))

    def embedding(self, time: NetworkTimes, label: Labels) -> Tensor:
        """Return the embedding of the time alone; the text enters by attention."""
        return super().embedding(time, None)

    def context(self, x: Images, label: Labels) -> Tensor:
        """Return the embeddings of the prompts, or of the empty one."""
        if self.prompts is None or self.null_label is None:
            raise OcmError(
                "this UNet2DConditionModel takes text, and has been given no prompts; say which:"
                " api.load(folder, prompts=[…]), or an experiment with captions"
            )
        if label is None:
            label = torch.full((len(x),), self.null_label, device=x.device)
        embeddings: Tensor = self.prompts(label)
        return embeddings.to(self.trunk.dtype)

    def _obstacles(self, model: UNet2DConditionModel) -> Iterator[str]:
        yield from super()._obstacles(model)
        config: Mapping[str, Any] = model.config
        for key in OTHER_CONDITIONS:
            if (value := config.get(key)) is not None:
                yield f"{key}={value!r}: a condition beside the text; expected None"
        if config["act_fn"] != "silu" or model.conv_norm_out is None:
            yield "act_fn and norm_num_groups: expected 'silu' and a norm before the last layer"


def adapt(model: UNet2DConditionModel) -> DiffusersTextUNet:
    """Wrap the model; its parameters are shared."""
    return DiffusersTextUNet(model)
