"""Compute the features of the reference set: statistics for distances, points for manifolds."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import torch

from ocm_core.datasets.base import EightBitSplit
from ocm_core.features import FeatureSpace, FeatureVectors, ImageSet, feature_batches
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.precision_recall import Manifold
from ocm_core.precision import set_precision
from ocm_core.rng.streams import Stream, stream
from ocm_core.stages import Artifact, Experiment, Inputs, Job, Params, Stage, Work, require
from ocm_core.stages.classifier import ClassifierWeights
from ocm_core.stages.fetch_data import ARCHIVES, FetchedData, data_modules, open_data
from ocm_core.stages.fetch_features import FetchedFeatures
from ocm_core.stages.fetch_reference import FetchedReference, has_published_reference

SPACE_TASKS = (ClassifierWeights.task(), FetchedFeatures.task())  # networks of feature spaces


def _plugins(experiment: Experiment, part: str) -> list[str]:
    published = ["ocm_core.features.published_reference"] * has_published_reference(experiment)
    return [f"ocm_core.features.{part}", *published, *data_modules(experiment)]


STAGE: Stage[Params] = Stage(
    __name__,
    "encode",
    parts=lambda experiment: experiment.spaces,
    takes=lambda e, part: [
        (FetchedReference if has_published_reference(e) else FetchedData).task(),
        *SPACE_TASKS,
    ],
    reads=("data", "features"),
    plugins=_plugins,
    gpu=True,
    work=lambda e, part: Work(
        require(e.features).reference_images or sum(e.data.count_items().values()), "spaces"
    ),
)


class Reference(Artifact):
    """The features of the reference set in one space."""

    def save(self, statistics: Statistics, manifold: Manifold) -> None:
        statistics.save(self.folder / "statistics.npz")
        np.save(self.folder / "features.npy", manifold.points.numpy())
        np.save(self.folder / "radii.npy", manifold.radii.numpy())

    def load(self) -> tuple[Statistics, Manifold]:
        points, radii = (np.load(self.folder / f"{name}.npy") for name in ("features", "radii"))
        manifold = Manifold.known(torch.from_numpy(points), torch.from_numpy(radii))
        return Statistics.load(self.folder / "statistics.npz"), manifold


def load_space(job: Inputs, name: str) -> FeatureSpace:
    """Load a feature space; on a GPU its network runs in TF32."""
    set_precision()
    given: list[Any] = [job.device]
    if name == "classifier":
        given = [job.take(ClassifierWeights).file, job.device]
    elif name == "inception":
        inside = require(job.experiment.features).reference is not None
        given = [job.take(FetchedFeatures).folder, job.device, inside]
    space: FeatureSpace = import_module(f"ocm_core.features.{name}").build(*given)
    return space


def run(job: Job) -> None:
    """Compute the features of all images, and keep those of the manifold."""
    settings, space = require(job.experiment.features), load_space(job, job.part)
    statistics = provenance = None
    images: ImageSet
    if settings.reference is None:
        data = open_data(job)
        whole = data.splits["train"]
        first = replace(whole, count=min(len(whole), settings.reference_images or len(whole)))
        images = EightBitSplit(first, require(data.levels))
    else:
        module = import_module("ocm_core.features.published_reference")
        statistics, images, provenance = module.open_reference(settings.reference, ARCHIVES)
    count = len(images)
    chosen = np.arange(count)
    if (wanted := settings.manifold_images) and wanted < count:  # of more it costs too much
        rng = stream(Stream.MANIFOLD, settings.seed)
        chosen = np.sort(rng.choice(count, wanted, replace=False))
    kept: list[FeatureVectors] = []

    def batches() -> Iterator[FeatureVectors]:
        """Yield the features of all images, and keep those that are chosen."""
        first, size = 0, settings.batch_size
        for batch in feature_batches(space, images, size, lambda n: job.progress(n, "features")):
            within = chosen[(chosen >= first) & (chosen < first + len(batch))] - first
            kept.append(batch[torch.from_numpy(within)])
            first += len(batch)
            yield batch

    computed = batches()
    statistics = statistics or Statistics.over(computed)
    deque(computed, maxlen=0)  # where the statistics are published, for what is kept
    device = "cpu" if job.device == "mps" else job.device  # which has no float64
    manifold = Manifold.of(torch.cat(kept).to(device), neighbours=settings.neighbours)
    Reference(job.folder).save(statistics, manifold.to("cpu"))
    noted = None if provenance else count  # a file does not tell
    job.note(space=space.name, images=noted, manifold_images=len(chosen), published=provenance)
