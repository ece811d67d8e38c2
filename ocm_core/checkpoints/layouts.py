"""How published files nest their weights: one entry a layout, from content to state dict and back.

`take` gets what the restricted unpickler returned, and refuses whatever is not exactly its layout;
`give` nests a state dict as the published file has it, for the checkpoints of smoke experiments.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ocm_core.errors import OcmError, unknown

NETWORK = "eps_model"  # what Analytic-DPM's trainer calls the noise prediction network
SHOWN = 6

State = dict[str, Tensor]


class UnexpectedError(Exception):
    def __init__(self, expected: str, found: object) -> None:
        super().__init__(f"expected {expected}, found {_described(found)}")


class Layout(NamedTuple):
    take: Callable[[object], State]
    give: Callable[[State], object]
    allowed: tuple[type, ...] = ()  # classes that the file holds beside tensors and containers


def flat(content: object) -> State:
    return _state(content, "a flat dict of tensors")


def models_states(content: object) -> State:
    return _nested(content, "models_states", NETWORK)


def ema_models_states(content: object) -> State:
    return _nested(content, "ema_models_states", NETWORK)


def list_with_ema_last(content: object) -> State:
    """[model with `module.` before every key, optimiser, epoch, step, moving average]."""
    what = "a list that ends in the moving average, a flat dict of tensors"
    if not isinstance(content, Sequence) or isinstance(content, str) or len(content) < 2:
        raise UnexpectedError(what, content)
    return _state(content[-1], what)


def training_with_ema(content: object) -> State:
    """{model, ema, opt, args}."""
    return _nested(content, "ema")


def _as_ddim(state: State) -> object:
    prefixed = {f"module.{key}": tensor for key, tensor in state.items()}
    return [prefixed, {"state": {}, "param_groups": []}, 1, 1, state]


LAYOUTS: dict[str, Layout] = {
    "flat": Layout(flat, give=lambda state: state),
    "models_states": Layout(models_states, give=lambda state: {"models_states": {NETWORK: state}}),
    "ema_models_states": Layout(
        ema_models_states,
        give=lambda state: {
            "models_states": {NETWORK: state},
            "ema_models_states": {NETWORK: state},
        },
    ),
    "list_with_ema_last": Layout(list_with_ema_last, give=_as_ddim),
    "training_with_ema": Layout(
        training_with_ema,
        give=lambda state: {"model": state, "ema": state, "opt": {}, "args": Namespace()},
        allowed=(Namespace,),
    ),
}


def layout_named(name: str) -> Layout:
    if name not in LAYOUTS:
        raise OcmError(f"checkpoint layout: {unknown(name, LAYOUTS)}")
    return LAYOUTS[name]


def extract(name: str, content: object, path: Path, remedy: str) -> State:
    try:
        return layout_named(name).take(content)
    except UnexpectedError as error:
        raise OcmError(f"{path}: not of layout {name!r}: {error}; {remedy}") from None


def _nested(content: object, *keys: str) -> State:
    inner = content
    for depth, key in enumerate(keys):
        place = "".join(f"[{outer!r}]" for outer in keys[:depth]) or "the file"
        if not isinstance(inner, Mapping) or key not in inner:
            raise UnexpectedError(f"the key {key!r} in {place}", inner)
        inner = inner[key]
    place = "".join(f"[{key!r}]" for key in keys)
    return _state(inner, f"a flat dict of tensors at {place}")


def _state(content: object, expected: str) -> State:
    if not isinstance(content, Mapping) or not content:
        raise UnexpectedError(expected, content)
    if not all(isinstance(value, Tensor) for value in content.values()):
        raise UnexpectedError(expected, content)
    return {str(key): tensor for key, tensor in content.items()}


def _described(found: object) -> str:
    if isinstance(found, Mapping):
        keys = [str(key) for key in found]
        more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
        return f"a dict of {', '.join(keys[:SHOWN]) or 'nothing'}{more}"
    if isinstance(found, list | tuple):
        return f"a {type(found).__name__} of {', '.join(type(item).__name__ for item in found)}"
    return f"a {type(found).__name__}"
