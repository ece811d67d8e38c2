"""A model of diffusers run by its own forward pass, hooks of others included.

Offloading hangs on the forward pass of the whole model; so the features that heads read are taken
from inside it, where they enter the last norm.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ocm_core.checkpoints.diffusers_folder import TEXT_MODEL
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.errors import OcmError
from ocm_core.networks.diffusers import PromptEmbeddings, Prompts, wrapped
from ocm_core.shapes import Images, Labels, NetworkTimes

LAST_NORM = {
    "UNet2DModel": "conv_norm_out",
    "DiTTransformer2DModel": "norm_out",
    TEXT_MODEL: "conv_norm_out",
}


class FeatureTap:
    """Keeps what heads read of a model's last evaluation, whoever evaluates it."""

    def __init__(self, model: Any, adapter: ScoreNetwork | None = None) -> None:
        kind = type(model).__name__
        self.adapter = wrapped(model) if adapter is None else adapter
        self._forward = signature(model.forward)
        self._call: dict[str, Any] = {}
        self._hidden: Tensor | None = None
        model.register_forward_pre_hook(self._keep_call, with_kwargs=True)
        model.get_submodule(LAST_NORM[kind]).register_forward_pre_hook(self._keep_hidden)

    def _keep_call(self, model: nn.Module, args: Any, kwargs: Any) -> None:
        self._call = self._forward.bind(*args, **kwargs).arguments

    def _keep_hidden(self, norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._hidden = inputs[0]

    def take(self, count: int) -> TrunkFeatures:
        """Return the features of the last evaluation, which was of `count` images."""
        hidden, self._hidden = self._hidden, None
        if hidden is None or len(hidden) != count:
            evaluated = "none" if hidden is None else len(hidden)
            raise OcmError(
                f"a covariance head reads the features of {count} images, and the model has just "
                f"evaluated {evaluated}; evaluate it once before each step, without guidance (for "
                "guidance use CovariancePipeline)"
            )
        time = torch.as_tensor(self._call["timestep"], device=hidden.device).expand(count)
        label = self._call.get("class_labels")
        return TrunkFeatures(hidden, self.adapter.embedding(time, label))  # type: ignore[operator]


class HookedModel(ScoreNetwork):
    """A model as a score network; outputs have the precision of the inputs."""

    def __init__(self, model: Any, null_class: int | None) -> None:
        super().__init__()
        self.model, self.kind = model, type(model).__name__
        self.adapter = wrapped(model, null_class)
        self.head_kinds = self.adapter.head_kinds  # type: ignore[misc]
        self.out_channels_per_input = self.adapter.out_channels_per_input
        self.conditional = self.adapter.conditional
        self.null_label = self.adapter.null_label
        self.tap = FeatureTap(model, self.adapter)

    @property
    def takes_text(self) -> bool:
        """Tell whether the model takes text."""
        return self.kind == TEXT_MODEL

    def use_prompts(self, embeddings: PromptEmbeddings) -> None:
        """Let labels be rows of these embeddings; the last is that of the empty prompt."""
        self.adapter.prompts = Prompts(embeddings)
        self.adapter.null_label = self.null_label = len(embeddings) - 1

    def features(self, x: Images, time: NetworkTimes, label: Labels = None) -> TrunkFeatures:
        return self.evaluate(x, time, label)[0]

    def readout(self, features: TrunkFeatures) -> Images:
        return self.adapter.readout(features)

    def evaluate(
        self, x: Images, time: NetworkTimes, label: Labels = None
    ) -> tuple[TrunkFeatures, Images]:
        """Return the features and the output of one evaluation of the model."""
        (output,) = self.model(
            x.to(self.model.dtype), time, **self._condition(x, label), return_dict=False
        )
        return self.tap.take(len(x)), output.to(x.dtype)

    def _condition(self, x: Images, label: Labels) -> dict[str, Any]:
        if self.takes_text:
            return {"encoder_hidden_states": self.adapter.context(x, label)}  # type: ignore[operator]
        if label is None and self.null_label is not None:
            label = x.new_full((len(x),), self.null_label).long()
        return {"class_labels": label}

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return self.adapter.make_head(kind, **sizes)
