"""How published files nest their weights: from the content of a file to a state dict, and back.

`take` gets the object that the restricted unpickler returned, and raises if it does not have that
layout; `give` nests a state dict the same way, for experiments that make their own checkpoint.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ocm_core.errors import OcmError, unknown

NETWORK = "eps_model"  # what Analytic-DPM's trainer calls the noise prediction network
SHOWN = 6

StateDict = dict[str, Tensor]


class LayoutError(Exception):
    def __init__(self, expected: str, found: object) -> None:
        super().__init__(f"expected {expected}, found {_described(found)}")


class CheckpointLayout(NamedTuple):
    take: Callable[[object], StateDict]
    give: Callable[[StateDict], object]
    allowed: tuple[type, ...] = ()  # classes that the file holds beside tensors and containers


def flat(content: object) -> StateDict:
    return _state(content, "a flat dict of tensors")


def models_states(content: object) -> StateDict:
    return _nested(content, "models_states", NETWORK)


def ema_models_states(content: object) -> StateDict:
    return _nested(content, "ema_models_states", NETWORK)


def list_with_ema_last(content: object) -> StateDict:
    """[model with `module.` before every key, optimiser, epoch, step, moving average]."""
    what = "a list that ends in the moving average, a flat dict of tensors"
    if not isinstance(content, Sequence) or isinstance(content, str) or len(content) < 2:
        raise LayoutError(what, content)
    return _state(content[-1], what)


def training_with_ema(content: object) -> StateDict:
    """{model, ema, opt, args}."""
    return _nested(content, "ema")


def _as_ddim(state: StateDict) -> object:
    prefixed = {f"module.{key}": tensor for key, tensor in state.items()}
    return [prefixed, {"state": {}, "param_groups": []}, 1, 1, state]


LAYOUTS: dict[str, CheckpointLayout] = {
    "flat": CheckpointLayout(flat, give=lambda state: state),
    "models_states": CheckpointLayout(
        models_states, give=lambda state: {"models_states": {NETWORK: state}}
    ),
    "ema_models_states": CheckpointLayout(
        ema_models_states,
        give=lambda state: {
            "models_states": {NETWORK: state},
            "ema_models_states": {NETWORK: state},
        },
    ),
    "list_with_ema_last": CheckpointLayout(list_with_ema_last, give=_as_ddim),
    "training_with_ema": CheckpointLayout(
        training_with_ema,
        give=lambda state: {"model": state, "ema": state, "opt": {}, "args": Namespace()},
        allowed=(Namespace,),
    ),
}


def layout_named(name: str) -> CheckpointLayout:
    if name not in LAYOUTS:
        raise OcmError(f"checkpoint layout: {unknown(name, LAYOUTS)}")
    return LAYOUTS[name]


def extract(name: str, content: object, path: Path, remedy: str) -> StateDict:
    try:
        return layout_named(name).take(content)
    except LayoutError as error:
        raise OcmError(f"{path}: not of layout {name!r}: {error}; {remedy}") from None


def _nested(content: object, *keys: str) -> StateDict:
    inner = content
    for depth, key in enumerate(keys):
        place = "".join(f"[{outer!r}]" for outer in keys[:depth]) or "the file"
        if not isinstance(inner, Mapping) or key not in inner:
            raise LayoutError(f"the key {key!r} in {place}", inner)
        inner = inner[key]
    place = "".join(f"[{key!r}]" for key in keys)
    return _state(inner, f"a flat dict of tensors at {place}")


def _state(content: object, expected: str) -> StateDict:
    if not isinstance(content, Mapping) or not content:
        raise LayoutError(expected, content)
    for value in content.values():
        if not isinstance(value, Tensor):
            raise LayoutError(expected, content)
        if value.layout != torch.strided or value.is_nested or value.is_quantized or value.is_meta:
            raise LayoutError(expected, value)
    places = [value.untyped_storage().data_ptr() for value in content.values() if value.numel()]
    if len(set(places)) < len(places):  # safetensors could not say so
        raise LayoutError(f"{expected}, each with values of its own", content)
    return {str(key): tensor for key, tensor in content.items()}


def _described(found: object) -> str:
    if isinstance(found, Mapping):
        keys = [str(key) for key in found]
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        return f"a dict of {', '.join(keys[:SHOWN]) or 'nothing'}{more}"
    if isinstance(found, list | tuple):
        kinds = [type(item).__name__ for item in found[:SHOWN]]
        return f"a {type(found).__name__} of {len(found)}: {', '.join(kinds)}"
    if isinstance(found, Tensor):
        return "a tensor that is nested, sparse, quantised or without values"
    return f"a {type(found).__name__}"
