"""The stored training split as batches to fit a network to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocm_core.artifacts.encoded import open_split
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.errors import OcmError
from ocm_core.store.loader import open_items
from ocm_core.training.batches import DroppedLabels, Items, Unlabelled

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

MEMORY = 8 * 2**30  # bytes
BUFFER = 32  # chunks that are shuffled together
SAMPLE = 50_000  # items that tell the variance


@dataclass(frozen=True)
class TrainingSet:
    """The items, and the variance that preconditioning and Gaussian baselines are relative to."""

    items: Items
    variance: float

    def for_network(self, network: ScoreNetwork) -> Items:
        """As this network is trained: without labels, or with some of them dropped."""
        if network.conditional:
            return DroppedLabels.for_network(self.items, network)
        return Unlabelled(self.items)


def held_bytes(split_bytes: float, item_bytes: float, chunk: int) -> float:
    """Of the host's memory: the set, or a buffer of it, and what tells the variance."""
    items = min(SAMPLE, split_bytes / item_bytes) if item_bytes else 0
    held = split_bytes if split_bytes <= MEMORY else BUFFER * chunk * item_bytes
    return held + items * item_bytes


def open_training_set(job: Job, batch_size: int = 1) -> TrainingSet:
    """From memory where the set fits there, else streamed; the batches are the same."""
    split = open_split(job, "train")
    if len(split) < batch_size:
        key, name = f"train.{job.stage}.batch_size", job.experiment.name
        raise OcmError(
            f"{key}: {batch_size}, and there are {len(split)} items to train on; lower it: "
            f"`ocm set {name} {key}={len(split)}`"
        )
    items = open_items(split, buffer=BUFFER, memory_bytes=MEMORY)
    sample = split.read(range(min(len(split), SAMPLE)))
    return TrainingSet(items, float(sample.var(0).mean()))
