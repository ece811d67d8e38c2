"""diffusers' `DiTTransformer2DModel`; the label behind the last class stands for "no label"."""

from collections.abc import Mapping
from typing import Any

from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel
from torch import Tensor

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import ModulatedOutput
from ocm_core.networks.diffusers import DiffusersNetwork
from ocm_core.shapes import Images, Labels, NetworkTimes


class DiffusersDiT(DiffusersNetwork):
    """A DiT of diffusers, cut before its last layer."""

    head_kinds = ("adaln",)
    model_kind = DiTTransformer2DModel
    conditional = True
    output: ModulatedOutput

    def __init__(self, model: DiTTransformer2DModel) -> None:
        super().__init__(model)
        self.classes: int = self.config["num_embeds_ada_norm"]
        self.null_label = self.classes
        self.patchify, self.blocks = model.pos_embed, model.transformer_blocks
        patch = self.config["patch_size"]
        self.output = ModulatedOutput(model.proj_out_1, model.proj_out_2, patch)
        self.published_names = {
            "patchify": "pos_embed",
            "blocks": "transformer_blocks",
            "output.modulation": "proj_out_1",
            "output.linear": "proj_out_2",
        }

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        expected = (self.in_channels, *[self.config["sample_size"]] * 2)
        if tuple(x.shape[1:]) != expected:
            raise OcmError(f"items of shape {tuple(x.shape[1:])}: this model takes {expected}")
        given = self.arguments(x, time, label)
        hidden = self.patchify(given.pop("hidden_states"))
        for block in self.blocks:
            hidden = block(hidden, **given)
        return self.features_of((hidden,), given)

    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        return {"hidden_states": x, "timestep": time, "class_labels": self.labels(x, label)}

    def features_of(self, last: tuple[Tensor, ...], given: Mapping[str, Any]) -> TrunkFeatures:
        return TrunkFeatures(last[0], self.embedding(given["timestep"], given.get("class_labels")))

    def embedding(self, time: NetworkTimes, label: Labels) -> Tensor:
        """Return the embedding that the last layer is given; every block makes its own."""
        first = self.blocks[0]
        dtype = next(first.parameters()).dtype
        embedding: Tensor = first.get_submodule("norm1.emb")(time, label, hidden_dtype=dtype)
        return embedding

    def head(self, kind: str) -> ModulatedOutput:
        width, patch = self.output.modulation.in_features, self.output.patch_size
        return ModulatedOutput.untrained(width, patch, self.in_channels)


ADAPTER = DiffusersDiT
