"""The stored training split as batches to fit a network to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocm_core.artifacts.encoded import open_split
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.store.loader import open_items
from ocm_core.training.batches import DroppedLabels, Items, Unlabelled

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

_MEMORY = 8 * 2**30  # bytes
_BUFFER = 32  # chunks that are shuffled together
_SAMPLE = 50_000  # items that tell the variance


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


def open_training_set(job: Job) -> TrainingSet:
    """From memory where the set fits there, else streamed; the batches are the same."""
    split = open_split(job, "train")
    items = open_items(split, buffer=_BUFFER, memory_bytes=_MEMORY)
    sample = split.read(range(min(len(split), _SAMPLE)))
    return TrainingSet(items, float(sample.var(0).mean()))
