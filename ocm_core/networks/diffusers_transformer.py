"""Transformers of diffusers: their own forward pass, cut before the last layers.

The last norm of the trunk keeps what it is given: the tokens of the image, and the embedding of
time and text. Its last layer gives zeros, which the model puts together in vain. Models that take
text, such as Stable Diffusion 3 and Sana, need no more than this; their labels are prompts.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from ocm_core.diffusion.score_network import TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks._layers import ModulatedOutput
from ocm_core.networks.diffusers import DiffusersNetwork
from ocm_core.shapes import Images, Labels, NetworkTimes

TABLE = "scale_shift_table"  # of models whose last norm has no weights of its own


class KeptInputs(nn.Module):
    """Stands in for the last norm: keeps its inputs until they are taken."""

    given: tuple[Tensor, ...] = ()

    def forward(self, hidden: Tensor, *others: Tensor) -> Tensor:
        self.given = (hidden, *others)
        return hidden

    def take(self) -> tuple[Tensor, ...]:
        given, self.given = self.given, ()
        return given


class Zeros(nn.Module):
    """Stands in for the last layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.new_zeros(1).expand(*hidden.shape[:-1], self.width)


class ScaleFirstOutput(ModulatedOutput):
    """The last layers of a model with an `AdaLayerNormContinuous`."""

    def shift_and_scale(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = super().shift_and_scale(embedding)
        return shift, scale


class TableOutput(ModulatedOutput):
    """The last layers of a model with a table (adaLN-single)."""

    def shift_and_scale(self, embedding: Tensor) -> tuple[Tensor, Tensor]:
        shift, scale = (self.modulation + embedding.unsqueeze(1)).chunk(2, dim=1)
        return shift, scale


class DiffusersTransformer(DiffusersNetwork):
    """A transformer with a table, or an `AdaLayerNormContinuous`, before its last layer."""

    head_kinds = ("adaln",)
    conditional = True
    modulation, linear = "norm_out.linear", "proj_out"  # the last layers of the model
    output_kind: type[ModulatedOutput] = ScaleFirstOutput
    output: ModulatedOutput

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if hasattr(model, TABLE):
            self.modulation, self.output_kind = TABLE, TableOutput
            self.trunk._parameters, self.trunk._buffers = {}, {TABLE: torch.zeros(2, 1)}
            self.trunk._non_persistent_buffers_set = {TABLE}
        modulation, linear = attrgetter(self.modulation, self.linear)(model)
        last = {"norm_out": KeptInputs(), self.linear: Zeros(linear.out_features)}
        self.trunk._modules = model._modules | last
        self.output = self.output_kind(modulation, linear, self.patch_size)
        self.published_names |= {"output.modulation": self.modulation, "output.linear": self.linear}

    def obstacles(self, model: Any) -> Iterator[str]:
        yield from super().obstacles(model)
        if model.config.get("guidance_embeds"):
            yield "guidance_embeds: a distilled model is no posterior mean; expected one without"

    @property
    def patch_size(self) -> int:
        return int(self.config["patch_size"])

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        self.check(x)
        given = self.arguments(x, time, label)
        self.trunk(**given)
        return self.features_of(self.trunk.norm_out.take(), given)

    def check(self, x: Images) -> None:
        """Refuse items of another shape than the model's."""
        expected = (self.in_channels, *[self.config["sample_size"]] * 2)
        if tuple(x.shape[1:]) != expected:
            raise OcmError(f"items of shape {tuple(x.shape[1:])}: this model takes {expected}")

    def arguments(self, x: Images, time: NetworkTimes, label: Labels) -> dict[str, Any]:
        told = time * self.config.get("timestep_scale", 1)
        return {"hidden_states": x, "timestep": told, **self.texts(x, label)}

    def head(self, kind: str) -> ModulatedOutput:
        width = self.output.linear.in_features
        return ModulatedOutput.untrained(width, self.patch_size, self.in_channels)


ADAPTER = DiffusersTransformer
