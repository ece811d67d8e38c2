"""Reading the golden files: numbers that the published implementations produced."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

GOLDENS = Path(__file__).parent / "goldens"


@cache
def arrays(name: str) -> NpzFile:
    return np.load(GOLDENS / f"{name}.npz")


@cache
def facts(name: str) -> dict[str, Any]:
    return json.loads((GOLDENS / f"{name}.json").read_text())


def tensor(name: str, key: str) -> Tensor:
    return torch.from_numpy(np.array(arrays(name)[key]))


def assert_close(ours: Any, golden: Any, relative: float) -> None:
    """Within `relative` of the golden array's largest value."""
    ours, golden = np.asarray(ours), np.asarray(golden)
    assert ours.shape == golden.shape
    scale = max(float(np.abs(golden).max()), 1e-300)
    worst = float(np.abs(ours - golden).max()) / scale
    assert worst <= relative, f"differs by {worst:.2e} of the largest value, allowed {relative:.0e}"
