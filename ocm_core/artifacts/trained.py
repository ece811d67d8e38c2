"""What every training stage leaves: the averaged weights in one file, and the training curve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from safetensors.torch import save_file
from torch import nn

from ocm_core.distributed import current_rank
from ocm_core.training.state import TrainingState, save_curve

Module = TypeVar("Module", bound=nn.Module)


def save_networks(path: Path, networks: Mapping[str, nn.Module]) -> None:
    """One file; cloned, because networks may share tables that a file cannot."""
    if not current_rank().is_first:
        return
    tensors = {
        f"{label}.{name}" if label else name: tensor.detach().cpu().clone()
        for label, network in networks.items()
        for name, tensor in network.state_dict().items()
    }
    save_file(tensors, path)


def finish_training(folder: Path, state: TrainingState) -> None:
    """Put the moving average in place and keep the curve; the optimiser's state has served."""
    state.use_average()
    if not current_rank().is_first:
        return
    save_curve(folder, state.curve)
    state.path(folder).unlink(missing_ok=True)


def frozen(module: Module, device: str) -> Module:
    return module.to(device).eval().requires_grad_(False)
