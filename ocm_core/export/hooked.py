"""A model of diffusers run by its own forward pass, hooks of others included.

Offloading hangs on the forward pass of the whole model; so the features that heads read are taken
from inside it, where they enter the last norm.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ocm_core.checkpoints.diffusers_folder import TEXT_MODEL
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.networks.diffusers import wrapped
from ocm_core.networks.prompts import PromptEmbeddings, Prompts
from ocm_core.shapes import Images, Labels, NetworkTimes

LAST_NORM = {
    "UNet2DModel": "conv_norm_out",
    "DiTTransformer2DModel": "norm_out",
    TEXT_MODEL: "conv_norm_out",
}


class HookedModel(ScoreNetwork):
    """In the model's own precision inside; what comes out has the precision of what came in."""

    def __init__(self, model: Any, null_class: int | None) -> None:
        super().__init__()
        self.model, self.kind = model, type(model).__name__
        self.adapter = wrapped(model, null_class)
        self.head_kinds = self.adapter.head_kinds  # type: ignore[misc]
        self.out_channels_per_input = self.adapter.out_channels_per_input
        self.conditional = self.adapter.conditional
        self.null_label = self.adapter.null_label
        self.last_norm: nn.Module = model.get_submodule(LAST_NORM[self.kind])

    @property
    def takes_text(self) -> bool:
        return self.kind == TEXT_MODEL

    def use_prompts(self, embeddings: PromptEmbeddings) -> None:
        """From here on, labels are their rows; the last is that of the empty prompt."""
        self.adapter.prompts = Prompts(embeddings)
        self.adapter.null_label = self.null_label = len(embeddings) - 1

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        return self.evaluate(x, time, label)[0]

    def readout(self, features: TrunkFeatures) -> Images:
        return self.adapter.readout(features)

    def evaluate(
        self, x: Images, time: NetworkTimes, label: Labels = None
    ) -> tuple[TrunkFeatures, Images]:
        entering: list[Tensor] = []
        hook = self.last_norm.register_forward_pre_hook(
            lambda module, inputs: entering.append(inputs[0])
        )
        try:
            (output,) = self.model(
                x.to(self.model.dtype), time, **self._condition(x, label), return_dict=False
            )
        finally:
            hook.remove()
        embedding = self.adapter.embedding(time, self._label(x, label))  # type: ignore[operator]
        return TrunkFeatures(entering[0], embedding), output.to(x.dtype)

    def _condition(self, x: Images, label: Labels) -> dict[str, Any]:
        if self.takes_text:
            return {"encoder_hidden_states": self.adapter.context(x, label)}  # type: ignore[operator]
        return {"class_labels": self._label(x, label)}

    def _label(self, x: Images, label: Labels) -> Labels:
        if label is None and self.null_label is not None:
            return x.new_full((len(x),), self.null_label).long()
        return label

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return self.adapter.make_head(kind, **sizes)
