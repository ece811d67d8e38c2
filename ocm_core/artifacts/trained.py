"""What every training stage leaves: the averaged weights in one file, and the training curve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from safetensors.torch import save_file
from torch import Tensor, nn

from ocm_core.distributed import current_rank
from ocm_core.io.atomic import replacing
from ocm_core.io.disk import room_for
from ocm_core.training.state import TrainingState, save_curve

Module = TypeVar("Module", bound=nn.Module)


def save_networks(path: Path, networks: Mapping[str, nn.Module]) -> None:
    """One file; cloned, because networks may share tables that a file cannot."""
    if current_rank().is_first:
        _save(path, dict(_tensors(networks)))


def save_average(path: Path, state: TrainingState) -> None:
    """The moving average as `save_networks` would leave it, while training goes on."""
    if current_rank().is_first:
        _save(path, {name: state.average.get(name, t) for name, t in _tensors(state.networks)})


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    copied = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    needed = sum(tensor.nbytes for tensor in copied.values())
    with room_for(path, needed), replacing(path) as temporary:
        save_file(copied, temporary)


def _tensors(networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
    for label, network in networks.items():
        for name, tensor in network.state_dict().items():
            yield (f"{label}.{name}" if label else name), tensor


def finish_training(folder: Path, state: TrainingState) -> None:
    """Put the moving average in place and keep the curve."""
    state.use_average()
    if current_rank().is_first:
        save_curve(folder, state.curve)


def frozen(module: Module, device: str) -> Module:
    return module.to(device).eval().requires_grad_(False)
