"""Distances between sets of vectors (Fréchet, kernel, MMD, precision and recall); shared checks."""

from math import sqrt

import torch
from numpy import ndarray
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.shapes import Points


def mean_and_error(values: Tensor | ndarray) -> tuple[float, float]:
    """Return the mean of independent values and its standard error."""
    deviation = values.std(ddof=1) if isinstance(values, ndarray) else values.std()
    return float(values.mean()), float(deviation) / sqrt(len(values))


def check_points(points: Points, what: str, at_least: int) -> None:
    """Refuse too few points, or coordinates that are no numbers; `what` names the set."""
    if points.ndim != 2 or len(points) < at_least:
        raise OcmError(
            f"{what}: expected at least {at_least} feature vectors in rows, found an array of"
            f" shape {tuple(points.shape)}; evaluate more images"
        )
    if not bool(torch.isfinite(torch.stack(torch.aminmax(points))).all()):
        raise OcmError(
            f"{what}: expected finite feature vectors, found NaN or infinity in"
            f" {int((~torch.isfinite(points)).any(1).sum())} of {len(points)}; look at the images"
        )


def check_same_space(real: int, generated: int) -> None:
    """Refuse to compare vectors of different feature spaces."""
    if real != generated:
        raise OcmError(
            f"expected features of one space, found {real} dimensions (real) and {generated}"
            " (generated); compute both with the same features"
        )
