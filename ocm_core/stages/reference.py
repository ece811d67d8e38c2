"""The reference set in the feature space: its statistics, and some of its points for manifolds.

It is the training set, its first images, or a published file with the statistics of a training set
and a batch of its images.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ocm_core.artifacts.dataset import ARCHIVES, open_data
from ocm_core.artifacts.feature_space import load_space
from ocm_core.artifacts.reference import save_reference
from ocm_core.datasets.eight_bit import EightBitSplit
from ocm_core.features.interface import (
    FeatureSpace,
    FeatureVectors,
    ImageSet,
    UInt8Images,
    feature_batches,
)
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.precision_recall import Manifold
from ocm_core.rng.streams import Purpose, stream
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    settings, space = require(job.experiment.evaluate.features), load_space(job, job.part)
    source = _reference_set(job)
    chosen = _chosen(len(source.images), settings.manifold_images, settings.seed)
    kept: list[FeatureVectors] = []
    batches = _keeping(_batches(job, space, source.images), chosen, kept)
    statistics = source.statistics or Statistics.over(batches)
    deque(batches, maxlen=0)  # where the statistics are published, for what is kept
    device = "cpu" if job.device == "mps" else job.device  # which has no float64
    manifold = Manifold.of(torch.cat(kept).to(device), neighbours=settings.neighbours)
    save_reference(job.folder, statistics, manifold.to("cpu"))
    job.note(
        space=space.name,
        images=None if source.statistics else len(source.images),  # a file does not tell
        manifold_images=len(chosen),
        published=source.provenance,
    )


class ReferenceSet(NamedTuple):
    """The images, and what a published file of them has beside."""

    images: ImageSet
    statistics: Statistics | None = None
    provenance: dict[str, str] | None = None


@dataclass(frozen=True)
class First:
    """The first `count` images of a set."""

    images: ImageSet
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> UInt8Images:
        return self.images[slice(*rows.indices(self.count))]


def _reference_set(job: Job) -> ReferenceSet:
    settings = require(job.experiment.evaluate.features)
    if settings.reference is None:
        data = open_data(job)
        images = EightBitSplit(data.splits["train"], require(data.levels))
        count = min(len(images), settings.reference_images or len(images))
        return ReferenceSet(First(images, count))
    module = import_module("ocm_core.features.published_reference")
    opened = module.open_reference(settings.reference, ARCHIVES)
    return ReferenceSet(opened.images, opened.statistics, opened.provenance)


def _batches(job: Job, space: FeatureSpace, images: ImageSet) -> Iterator[FeatureVectors]:
    size = require(job.experiment.evaluate.features).batch_size
    return feature_batches(
        space, images, size, lambda firsts: job.progress(firsts, "features of the reference set")
    )


def _chosen(count: int, wanted: int | None, seed: int) -> np.ndarray:
    """Positions of a random subset, in order; the manifold of a large set is too dear."""
    if wanted is None or wanted >= count:
        return np.arange(count)
    return np.sort(stream(Purpose.MANIFOLD, seed).choice(count, wanted, replace=False))


def _keeping(
    batches: Iterator[FeatureVectors], chosen: np.ndarray, kept: list[FeatureVectors]
) -> Iterator[FeatureVectors]:
    """Pass the batches on, and keep the rows that are chosen."""
    first = 0
    for batch in batches:
        within = chosen[(chosen >= first) & (chosen < first + len(batch))] - first
        kept.append(batch[torch.from_numpy(within)])
        first += len(batch)
        yield batch
