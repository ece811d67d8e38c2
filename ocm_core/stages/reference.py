"""Compute the features of the reference set: statistics for distances, points for manifolds.

The reference set is the training set, its first images, or a published file with the statistics of
a training set and a batch of its images.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch

from ocm_core.datasets.base import EightBitSplit
from ocm_core.features import (
    FeatureSpace,
    FeatureVectors,
    ImageSet,
    UInt8Images,
    feature_batches,
)
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.precision_recall import Manifold
from ocm_core.precision import set_precision
from ocm_core.rng.streams import Stream, stream
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage, Task, Work, require
from ocm_core.stages.classifier import ClassifierWeights
from ocm_core.stages.fetch_data import ARCHIVES, FetchedData, data_modules, open_data
from ocm_core.stages.fetch_features import FetchedFeatures
from ocm_core.stages.fetch_reference import FetchedReference, has_published_reference

SPACE_TASKS = (ClassifierWeights.task(), FetchedFeatures.task())  # networks of feature spaces


def _takes(experiment: Experiment, part: str) -> list[Task]:
    data = [] if has_published_reference(experiment) else [FetchedData.task()]
    return [*data, *SPACE_TASKS, FetchedReference.task()]


def _plugins(experiment: Experiment, part: str) -> list[str]:
    published = ["ocm_core.features.published_reference"] * has_published_reference(experiment)
    return [f"ocm_core.features.{part}", *published, *data_modules(experiment)]


def _work(experiment: Experiment, part: str) -> Work:
    every = sum(experiment.data.count_items().values())
    return Work(require(experiment.features).reference_images or every, "features")


STAGE: Stage[Params] = Stage(
    __name__,
    "encode",
    parts=lambda experiment: experiment.spaces,
    takes=_takes,
    reads=("data", "features"),
    plugins=_plugins,
    gpu=True,
    memory=16_000,
    work=_work,
)


class Reference(Artifact):
    """The features of the reference set in one space."""

    def save(self, statistics: Statistics, manifold: Manifold) -> None:
        statistics.save(self.folder / "statistics.npz")
        np.save(self.folder / "features.npy", manifold.points.numpy())
        np.save(self.folder / "radii.npy", manifold.radii.numpy())

    def load(self) -> tuple[Statistics, Manifold]:
        points, radii = (
            torch.from_numpy(np.load(self.folder / name)) for name in ("features.npy", "radii.npy")
        )
        return Statistics.load(self.folder / "statistics.npz"), Manifold.known(points, radii)


def load_space(job: Inputs, name: str) -> FeatureSpace:
    """Load a feature space; on a GPU its network runs in TF32."""
    set_precision()
    module = import_module(f"ocm_core.features.{name}")
    space: FeatureSpace
    if name == "classifier":
        space = module.build(job.take(ClassifierWeights).file, job.device)
    elif name == "inception":
        inside = require(job.experiment.features).reference is not None
        space = module.build(job.take(FetchedFeatures).folder, job.device, resize_inside=inside)
    else:
        space = module.build(job.device)
    return space


def run(job: Job) -> None:
    settings, space = require(job.experiment.features), load_space(job, job.part)
    statistics = provenance = None
    images: ImageSet
    if settings.reference is None:
        data = open_data(job)
        whole = EightBitSplit(data.splits["train"], require(data.levels))
        images = First(whole, min(len(whole), settings.reference_images or len(whole)))
    else:
        module = import_module("ocm_core.features.published_reference")
        opened = module.open_reference(settings.reference, ARCHIVES)
        images, statistics, provenance = opened.images, opened.statistics, opened.provenance
    noted = len(images) if statistics is None else None  # a file does not tell
    chosen = _chosen(len(images), settings.manifold_images, settings.seed)
    kept: list[FeatureVectors] = []
    computed = feature_batches(
        space,
        images,
        settings.batch_size,
        lambda firsts: job.progress(firsts, "features of the reference set"),
    )
    batches = _keeping(computed, chosen, kept)
    statistics = statistics or Statistics.over(batches)
    deque(batches, maxlen=0)  # where the statistics are published, for what is kept
    device = "cpu" if job.device == "mps" else job.device  # which has no float64
    manifold = Manifold.of(torch.cat(kept).to(device), neighbours=settings.neighbours)
    Reference(job.folder).save(statistics, manifold.to("cpu"))
    chose = len(chosen)
    job.note(space=space.name, images=noted, manifold_images=chose, published=provenance)


@dataclass(frozen=True)
class First:
    """The first `count` images of a set."""

    images: ImageSet
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, rows: slice) -> UInt8Images:
        return self.images[slice(*rows.indices(self.count))]


def _chosen(count: int, wanted: int | None, seed: int) -> np.ndarray:
    """Draw positions of a random subset, in order: the manifold of a large set costs too much."""
    if wanted is None or wanted >= count:
        return np.arange(count)
    return np.sort(stream(Stream.MANIFOLD, seed).choice(count, wanted, replace=False))


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
