"""The reference set in the feature space: statistics for distances, points for manifolds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.precision_recall import Manifold

STATISTICS, FEATURES, RADII = "statistics.npz", "features.npy", "radii.npy"


def save_reference(folder: Path, statistics: Statistics, manifold: Manifold) -> None:
    statistics.save(folder / STATISTICS)
    np.save(folder / FEATURES, manifold.points.numpy())
    np.save(folder / RADII, manifold.radii.numpy())


def load_reference(folder: Path) -> tuple[Statistics, Manifold]:
    points, radii = (torch.from_numpy(np.load(folder / name)) for name in (FEATURES, RADII))
    return Statistics.load(folder / STATISTICS), Manifold.known(points, radii)
