"""The state of interrupted work: tensors and facts in a safetensors file with its own checksum."""

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ocm_core.io.atomic import write_tensors

LOG = logging.getLogger("ocm")
_STATE = "state"  # checksum and facts in one entry: several have no order, and the bytes would vary


class State(NamedTuple):
    """Tensors and JSON facts, as `save_state` was given them."""

    tensors: dict[str, Tensor]
    facts: Any  # JSON


def save_state(path: Path, tensors: Mapping[str, Tensor], facts: Any) -> None:
    """Replace the state in `path`."""
    text = json.dumps(facts)
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_tensors(path, contiguous, {_STATE: f"{checksum(contiguous, text)} {text}"})


def load_state(path: Path) -> State | None:
    """Load a state bit by bit; return None if there is none, or with a warning if it is damaged."""
    if not path.exists():
        return None
    with suppress(SafetensorError, KeyError, ValueError), safe_open(path, "pt") as file:
        recorded, _, text = (file.metadata() or {})[_STATE].partition(" ")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if recorded == checksum(tensors, text):
            return State(tensors, json.loads(text))
    LOG.warning("%s: damaged, and thrown away; the work that it holds is done again", path)
    return None


def checksum(tensors: Mapping[str, Tensor], facts: str) -> str:
    """Return the sha256 of names, types, shapes, values and facts."""
    total = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
