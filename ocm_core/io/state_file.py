"""The state of interrupted work: tensors and facts in one safetensors file that proves itself.

The digest of everything in it is part of its metadata. A state is replaced whole, again and again,
and one that is damaged is no state: the work starts without it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ocm_core.io.atomic import replacing
from ocm_core.io.disk import room_for

LOG = logging.getLogger("ocm")
_FACTS, _DIGEST = "state", "sha256"


class State(NamedTuple):
    tensors: dict[str, Tensor]
    facts: Any  # JSON


def save_state(path: Path, tensors: Mapping[str, Tensor], facts: Any) -> None:
    text = json.dumps(facts)
    held = {name: tensor.contiguous() for name, tensor in tensors.items()}
    metadata = {_FACTS: text, _DIGEST: _digest(held, text)}
    needed = sum(tensor.nbytes for tensor in held.values())
    with room_for(path, needed), replacing(path) as temporary:
        save_file(held, temporary, metadata=metadata)


def load_state(path: Path) -> State | None:
    """What was saved, bit by bit; None if there is nothing, or if it is damaged, which is said."""
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        whole = metadata[_DIGEST] == _digest(tensors, metadata[_FACTS])
        found = State(tensors, json.loads(metadata[_FACTS])) if whole else None
    except (SafetensorError, KeyError, ValueError):
        found = None
    if found is None:
        LOG.warning("%s: damaged, and thrown away; the work that it holds is done again", path)
    return found


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    """Of names, types, shapes, values and facts."""
    total = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
