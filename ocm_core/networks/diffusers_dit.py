"""diffusers' `DiTTransformer2DModel`; the label behind the last class stands for "no label"."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.networks._layers import ModulatedOutput
from ocm_core.networks.diffusers_transformer import DiffusersTransformer, Zeros
from ocm_core.shapes import Images, Labels, NetworkTimes


class DiffusersDiT(DiffusersTransformer):
    """A DiT of diffusers; every block makes its own embedding, as the last layer does."""

    modulation, linear = "proj_out_1", "proj_out_2"
    output_kind = ModulatedOutput

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.trunk._modules[self.modulation] = Zeros(2)
        self.null_label = self.config["num_embeds_ada_norm"]

    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        return {"hidden_states": x, "timestep": time, "class_labels": self.labels(x, label)}

    def features_of(self, last: tuple[Tensor, ...], given: Mapping[str, Any]) -> TrunkFeatures:
        embedder = self.trunk.get_submodule("transformer_blocks.0.norm1.emb")
        dtype = next(self.trunk.transformer_blocks.parameters()).dtype
        time, label = given["timestep"], given.get("class_labels")
        return TrunkFeatures(last[0], embedder(time, label, hidden_dtype=dtype))


ADAPTER = DiffusersDiT
