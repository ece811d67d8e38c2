"""The data set as it was published, and what `encode` has made of it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.datasets.interface import DataSet
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.stages._settings import given
from ocm_core.store import reader as stored
from ocm_core.store.loader import open_items
from ocm_core.training.batches import DroppedLabels, Items, Unlabelled

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

ARCHIVES = Path("datasets")
_MEMORY = 8 * 2**30  # bytes
_BUFFER = 32  # chunks that are shuffled together
_SAMPLE = 50_000  # items that tell the variance


def open_data(job: Job) -> DataSet:
    """The images themselves, from the package or the archive that they come in."""
    data = job.experiment.data
    opened: DataSet = import_module(f"ocm_core.datasets.{data.kind}").open_data(data, ARCHIVES)
    return opened


def pixels(job: Job, split: str) -> tuple[Tensor, Tensor | None]:
    """All images of a split in [-1, 1], and their labels."""
    data = open_data(job)
    items = data.splits[split]
    values = torch.from_numpy(items.read(range(len(items)))).float()
    labels = None if items.labels is None else torch.from_numpy(items.labels)
    return 2 * values / (given(data.levels) - 1) - 1, labels


def open_split(job: Job, split: str) -> stored.Stored:
    """What is diffused, from the stores of all encode jobs."""
    folders = [folder for name, folder in job.inputs.items() if name.startswith("encode/")]
    return stored.open_split(folders, split)


def unseen_split(job: Job) -> str:
    """The test split; of a data set without one, the training split."""
    stores = (f / "test.zarr" for name, f in job.inputs.items() if name.startswith("encode/"))
    return "test" if any(store.exists() for store in stores) else "train"


def rows_of(job: Job, split: str, rows: range, labelled: bool) -> tuple[Tensor, Tensor | None]:
    """Some items on the device, with their labels if they are wanted and there are any."""
    found = open_split(job, split)
    x0 = torch.from_numpy(found.read(rows)).to(job.device)
    if not labelled or found.labels is None:
        return x0, None
    return x0, torch.from_numpy(found.labels[rows.start : rows.stop]).to(job.device)


def read_items(job: Job, split: str) -> Tensor:
    return torch.from_numpy(open_split(job, split).all())


@dataclass(frozen=True)
class TrainingItems:
    """The training set, and the variance that preconditioning and baselines are relative to."""

    items: Items
    variance: float

    def of(self, network: ScoreNetwork) -> Items:
        """As this network is trained on it: without labels, or with some of them dropped."""
        if network.conditional:
            return DroppedLabels.for_network(self.items, network)
        return Unlabelled(self.items)


def training_items(job: Job) -> TrainingItems:
    """From memory where the set fits there, else streamed; the batches are the same."""
    split = open_split(job, "train")
    items = open_items(split, buffer=_BUFFER, memory_bytes=_MEMORY)
    sample = split.read(range(min(len(split), _SAMPLE)))
    return TrainingItems(items, float(sample.var(0).mean()))
