"""The feature space of an experiment, and the training set as seen in it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ocm_core.features.interface import FeatureSpace
from ocm_core.io.lock import Lock
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.precision_recall import Manifold
from ocm_core.stages._settings import given

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

CLASSIFIER_FILE = "classifier.safetensors"
STATISTICS, FEATURES, RADII = "statistics.npz", "features.npy", "radii.npy"


def load_space(job: Job) -> FeatureSpace:
    settings = given(job.experiment.evaluate.features)
    name = settings.space
    module = import_module(f"ocm_core.features.{name}")
    space: FeatureSpace
    if name == "classifier":
        space = module.build(job.inputs["classifier/all"] / CLASSIFIER_FILE, job.device)
    elif name == "inception":
        folder, inside = job.inputs["fetch_features/all"], settings.reference is not None
        space = module.build(folder, Lock(), job.device, resize_inside=inside)
    else:
        space = module.build(job.device)
    return space


def save_reference(folder: Path, statistics: Statistics, manifold: Manifold) -> None:
    statistics.save(folder / STATISTICS)
    np.save(folder / FEATURES, manifold.points.numpy())
    np.save(folder / RADII, manifold.radii.numpy())


def load_reference(folder: Path) -> tuple[Statistics, Manifold]:
    points, radii = (torch.from_numpy(np.load(folder / name)) for name in (FEATURES, RADII))
    return Statistics.load(folder / STATISTICS), Manifold.known(points, radii)
