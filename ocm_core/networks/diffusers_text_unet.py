"""diffusers' `UNet2DConditionModel`, as in Stable Diffusion: its labels are rows of `Prompts`."""

from collections.abc import Iterator
from typing import Any

from ocm_core.networks.diffusers_unet import DiffusersUNet
from ocm_core.shapes import Images, Labels

from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel  # isort: skip

OTHER_CONDITIONS = (
    *("addition_embed_type", "encoder_hid_dim_type", "num_class_embeds"),
    *("time_embedding_act_fn", "timestep_post_act", "time_cond_proj_dim"),
)


class DiffusersTextUNet(DiffusersUNet):
    """Stable Diffusion's UNet, whose labels are prompts."""

    model_kind = UNet2DConditionModel
    label_dropout = 0.1  # as Stable Diffusion was trained

    def __init__(self, model: UNet2DConditionModel) -> None:
        super().__init__(model)
        self.conditional = True

    def context(self, x: Images, label: Labels) -> dict[str, Any]:
        """Return the embeddings of the prompts, or of the empty one; they enter by attention."""
        return self.texts(x, label)

    def obstacles(self, model: UNet2DConditionModel) -> Iterator[str]:
        yield from super().obstacles(model)
        for key in OTHER_CONDITIONS:
            if (value := model.config.get(key)) is not None:
                yield f"{key}={value!r}: a condition beside the text; expected None"
        if model.config["act_fn"] != "silu" or model.conv_norm_out is None:
            yield "act_fn and norm_num_groups: expected 'silu' and a norm before the last layer"


ADAPTER = DiffusersTextUNet
