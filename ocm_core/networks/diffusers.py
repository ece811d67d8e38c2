"""The family of models that diffusers has classes for: each class has an adapter of its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import nn

from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError, unknown
from ocm_core.io.reading import reading
from ocm_core.schema.experiment import DIFFUSERS_ADAPTERS

FAMILY = "diffusers"
_CHECK = "compare it with diffusers' documentation"


def build(config: Mapping[str, Any], null_class: int | None = None) -> ScoreNetwork:
    """A new model of the class that the configuration names, with random weights."""
    return wrapped(new_model(config), null_class)


def new_model(config: Mapping[str, Any]) -> nn.Module:
    kind = str(config.get("_class_name"))
    with reading("config.json", f"a configuration of {kind}", _CHECK):
        model: nn.Module = model_class(kind).from_config(dict(config))
    return model


def model_class(kind: str) -> Any:
    return getattr(_adapter(kind), kind)


def wrapped(model: nn.Module, null_class: int | None = None) -> ScoreNetwork:
    """The model as a score network; its parameters are shared."""
    network: ScoreNetwork = _adapter(type(model).__name__).adapt(model)
    if null_class is not None:
        network.null_label = null_class
    return network


def _adapter(kind: str) -> Any:
    if kind not in DIFFUSERS_ADAPTERS:
        raise OcmError(f"class of diffusers: {unknown(kind, DIFFUSERS_ADAPTERS)}")
    return import_module(f"ocm_core.networks.{DIFFUSERS_ADAPTERS[kind]}")
