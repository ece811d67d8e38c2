"""Shared by all training stages: reading the training split, and saving averaged weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing, room_for
from ocm_core.stages.encode import open_split
from ocm_core.store.loader import open_items
from ocm_core.training.batches import DroppedLabels, Items, Unlabelled
from ocm_core.training.state import TrainingState, save_curve

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from ocm_core.diffusion.score_network import ScoreNetwork
    from ocm_core.pipeline.job import Job

    Module = TypeVar("Module", bound=nn.Module)

MEMORY = 8 * 2**30  # bytes of a split that is held in memory
BUFFER = 32  # chunks that are shuffled together
SAMPLE = 50_000  # items that tell the variance


@dataclass(frozen=True)
class TrainingSet:
    """The items, and the variance that preconditioning and Gaussian baselines are relative to."""

    items: Items
    variance: float

    def for_network(self, network: ScoreNetwork) -> Items:
        """Return the items as this network is trained: unlabelled, or with some labels dropped."""
        if network.conditional:
            return DroppedLabels(self.items, network)
        return Unlabelled(self.items)


def open_training_set(job: Job, batch_size: int = 1) -> TrainingSet:
    """Open the training split, in memory where it fits there, else streamed in the same order."""
    split = open_split(job, "train")
    if len(split) < batch_size:
        key = f"train.{job.task.stage}.batch_size"
        raise OcmError(
            f"{key}: {batch_size}, but there are {len(split)} items to train on; set it to at most"
            f" {len(split)} in params/experiment/{job.experiment.name}.yaml"
        )
    items = open_items(split, buffer=BUFFER, memory_bytes=MEMORY)
    sample = split.read(range(min(len(split), SAMPLE)))
    return TrainingSet(items, float(sample.var(0).mean()))


def save_networks(path: Path, networks: Mapping[str, nn.Module]) -> None:
    """Save networks in one file, their tensors under their names."""
    if current_rank().is_first:
        save_tensors(path, dict(_tensors(networks)))


def save_average(path: Path, state: TrainingState) -> None:
    """Save the moving average as `save_networks` would, while training goes on."""
    if current_rank().is_first:
        save_tensors(
            path, {name: state.average.get(name, t) for name, t in _tensors(state.networks)}
        )


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Save copies of tensors, because networks may share tables that a file cannot."""
    from safetensors.torch import save_file

    copied = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
    needed = sum(tensor.nbytes for tensor in copied.values())
    with room_for(path, needed), replacing(path) as temporary:
        save_file(copied, temporary)


def _tensors(networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
    for label, network in networks.items():
        for name, tensor in network.state_dict().items():
            yield (f"{label}.{name}" if label else name), tensor


def finish_training(folder: Path, state: TrainingState) -> None:
    """Put the moving average in place and keep the loss curve."""
    state.use_average()
    if current_rank().is_first:
        save_curve(folder, state.curve)


def frozen(module: Module, device: str) -> Module:
    """Return the module on the device, in evaluation mode and without gradients."""
    return module.to(device).eval().requires_grad_(False)
