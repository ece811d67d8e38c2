"""How published files nest their weights, from the content of a file to a state dict and back."""

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
    """The content of a file does not have the layout."""

    def __init__(self, expected: str, content: object) -> None:
        super().__init__(f"expected {expected}, found {_described(content)}")


class CheckpointLayout(NamedTuple):
    """Where the weights are, and how to nest a state dict the same way for a dummy checkpoint."""

    place: tuple[str | int, ...]  # keys of dicts; -1 is the end of a list
    nest: Callable[[StateDict], object]
    allowed: tuple[type, ...] = ()  # classes that the file holds beside tensors and containers


def _ddim(state: StateDict) -> object:
    """Nest as [model with `module.` before every key, optimiser, epoch, step, moving average]."""
    prefixed = {f"module.{key}": tensor for key, tensor in state.items()}
    return [prefixed, {"state": {}, "param_groups": []}, 1, 1, state]


LAYOUTS: dict[str, CheckpointLayout] = {
    "flat": CheckpointLayout((), lambda state: state),
    "models_states": CheckpointLayout(
        ("models_states", NETWORK), lambda state: {"models_states": {NETWORK: state}}
    ),
    "ema_models_states": CheckpointLayout(
        ("ema_models_states", NETWORK),
        lambda state: {key: {NETWORK: state} for key in ("models_states", "ema_models_states")},
    ),
    "list_with_ema_last": CheckpointLayout((-1,), _ddim),
    "training_with_ema": CheckpointLayout(
        ("ema",),
        lambda state: {"model": state, "ema": state, "opt": {}, "args": Namespace()},
        (Namespace,),
    ),
}


def layout_named(name: str) -> CheckpointLayout:
    """Return the layout of that name."""
    if name not in LAYOUTS:
        raise OcmError(f"checkpoint layout: {unknown(name, LAYOUTS)}")
    return LAYOUTS[name]


def extract(name: str, content: object, path: Path, remedy: str) -> StateDict:
    """Return the weights in what the restricted unpickler read from the file `path`."""
    place = layout_named(name).place
    try:
        for depth, key in enumerate(place):
            content = _item(content, key, _shown(place[:depth]))
        return _state(content, f"a flat dict of tensors in {_shown(place)}")
    except LayoutError as error:
        raise OcmError(f"{path}: not of layout {name!r}: {error}; {remedy}") from None


def _shown(place: tuple[str | int, ...]) -> str:
    return "".join(f"[{key!r}]" for key in place) or "the file"


def _item(content: object, key: str | int, place: str) -> object:
    if isinstance(key, int):
        if not isinstance(content, Sequence) or isinstance(content, str) or len(content) < 2:
            raise LayoutError(f"a list that ends in the moving average in {place}", content)
        return content[key]
    if not isinstance(content, Mapping) or key not in content:
        raise LayoutError(f"the key {key!r} in {place}", content)
    return content[key]


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


def _described(content: object) -> str:
    if isinstance(content, Mapping):
        keys = [str(key) for key in content]
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        return f"a dict of {', '.join(keys[:SHOWN]) or 'nothing'}{more}"
    if isinstance(content, list | tuple):
        kinds = [type(item).__name__ for item in content[:SHOWN]]
        return f"a {type(content).__name__} of {len(content)}: {', '.join(kinds)}"
    if isinstance(content, Tensor):
        return "a tensor that is nested, sparse, quantised or without values"
    return f"a {type(content).__name__}"
