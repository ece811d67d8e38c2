"""Models that diffusers has classes for: each class has an adapter of its own.

A model that takes text has its prompts as labels: a label is the row of a table of embeddings. The
last row is the empty prompt's, which stands for "no label".
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from jaxtyping import Float32, Int
from torch import Tensor, nn

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.schema.experiment import DIFFUSERS_ADAPTERS

FAMILY = "diffusers"
_CHECK = "compare it with diffusers' documentation"

PromptEmbeddings = Float32[Tensor, "prompt token width"]
PromptLabels = Int[Tensor, " batch"]


class Prompts(nn.Module):
    """The embeddings of prompts, on the device of the network; no part of its weights."""

    embeddings: Tensor

    def __init__(self, embeddings: PromptEmbeddings) -> None:
        super().__init__()
        self.register_buffer("embeddings", embeddings, persistent=False)

    def forward(self, label: PromptLabels) -> PromptEmbeddings:
        return self.embeddings[label]


def build(config: Mapping[str, Any], null_class: int | None = None) -> ScoreNetwork:
    """Build a score network of the configuration's class, with random weights."""
    return wrapped(new_model(config), null_class)


def new_model(config: Mapping[str, Any]) -> nn.Module:
    """Build a model of the configuration's class, with random weights."""
    kind = str(config.get("_class_name"))
    with reading("config.json", f"a configuration of {kind}", _CHECK):
        model: nn.Module = model_class(kind).from_config(dict(config))
    return model


def model_class(kind: str) -> Any:
    """Return diffusers' class of that name."""
    return getattr(_adapter(kind), kind)


def wrapped(model: nn.Module, null_class: int | None = None) -> ScoreNetwork:
    """Wrap the model as a score network; its parameters are shared."""
    network: ScoreNetwork = _adapter(type(model).__name__).adapt(model)
    if null_class is not None:
        network.null_label = null_class
    return network


def _adapter(kind: str) -> Any:
    if kind not in DIFFUSERS_ADAPTERS:
        raise OcmError(f"class of diffusers: {unknown(kind, DIFFUSERS_ADAPTERS)}")
    return import_module(f"ocm_core.networks.{DIFFUSERS_ADAPTERS[kind]}")
