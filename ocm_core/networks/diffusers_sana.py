"""diffusers' `SanaTransformer2DModel`."""

from typing import Any

from diffusers.models.transformers.sana_transformer import SanaTransformer2DModel

from ocm_core.networks.diffusers_transformer import DiffusersTransformer, TableOutput
from ocm_core.shapes import Images, Labels, NetworkTimes


class DiffusersSana(DiffusersTransformer):
    """Its prompts are the tokens of a language model with a mask."""

    model_kind = SanaTransformer2DModel
    output_kind = TableOutput

    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        return super().arguments(x, time * self.config["timestep_scale"], label)


ADAPTER = DiffusersSana
