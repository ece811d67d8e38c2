"""The table of moments, and the state of one that is begun."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import numpy as np
import torch

from ocm_core.io.atomic import replacing
from ocm_core.io.state_file import load_state, save_state
from ocm_core.training.moments import Moments

MOMENTS_FILE = "moments.npz"


def save_moments(folder: Path, moments: Moments) -> None:
    with replacing(folder / MOMENTS_FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, **vars(moments))


def save_begun(folder: Path, rank: int, moments: Moments) -> None:
    """What one of the processes knows."""
    tables = {name: torch.from_numpy(table) for name, table in vars(moments).items()}
    save_state(folder / f"moments-{rank}.safetensors", tables, None)


def load_begun(folder: Path, steps: int) -> Moments:
    """What all processes know together, however many there were."""
    states = (load_state(file) for file in sorted(folder.glob("moments-*.safetensors")))
    tables = (state.tensors for state in states if state)
    known = (Moments(**{name: t.numpy() for name, t in found.items()}) for found in tables)
    return reduce(Moments.joined, known, Moments.empty(steps))


def load_moments(folder: Path) -> Moments:
    with np.load(folder / MOMENTS_FILE) as tables:
        return Moments(**{name: np.array(tables[name]) for name in tables.files})
