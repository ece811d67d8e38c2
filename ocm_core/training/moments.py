"""Monte-Carlo moments of the noise prediction, per timestep, with standard errors.

Γ_t = E‖ε̂‖² / d as published. Since E ε² = 1, the mean of ε² - ε̂² over the same draws is an
unbiased 1 - Γ_t too, and at large t, where ε̂ ≈ ε, its error is smaller by orders of magnitude:
1 - Γ_t is 1e-4 there and would drown in the noise of Γ_t.
"""

from collections.abc import Sequence
from contextlib import closing
from math import sqrt

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import q_sample
from ocm_core.prefetch import moved, pinned, prefetch
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import MomentsParams as Settings
from ocm_core.shapes import Batch, Labels, TimeTable
from ocm_core.training.batches import Items

NAMES = ("gamma", "gamma_error", "one_minus_gamma", "one_minus_gamma_error")  # of the tables


def grid(settings: Settings, steps: int) -> list[int]:
    """Return the timesteps at which moments are estimated."""
    points = min(settings.points or steps, steps)
    return [round(t) for t in np.linspace(1, steps, points).tolist()]


@torch.no_grad()
def estimate_at(
    denoiser: Denoiser, t: int, x0: Batch, eps: Batch, label: Labels = None, batch_size: int = 0
) -> Float64[Tensor, "4"]:
    """Estimate the tables at t from images x_0 and noise, `batch_size` (0: all) at a time."""
    x = q_sample(x0, eps, *denoiser.schedule.marginal(t))
    size, squares = batch_size or len(x), []
    for first in range(0, len(x), size):
        rows = slice(first, first + size)
        predicted = denoiser.predict(x[rows], t, None if label is None else label[rows]).eps
        squares.append((predicted.double() ** 2).flatten(1).mean(1))
    gamma = torch.cat(squares)
    one_minus_gamma = (eps.double() ** 2).flatten(1).mean(1) - gamma
    tables = gamma, one_minus_gamma
    entries = [(values.mean(), values.std() / sqrt(len(values))) for values in tables]
    return torch.stack([entry for pair in entries for entry in pair])


def estimate(
    denoiser: Denoiser, items: Items, settings: Settings, times: Sequence[int], device: str = "cpu"
) -> Float64[Tensor, "4 time"]:
    """Estimate the entries at these timesteps from noisy items; this does not wait for them."""

    def draw(t: int) -> tuple[int, tuple[Batch, Labels, Batch]]:
        rng = BatchRng(settings.seed, t, settings.draws)  # the timestep's own stream
        x0, label = items.batch(rng)
        return t, pinned((x0, label, rng.normals(tuple(x0.shape[1:]))), device)

    found = []
    with closing(prefetch(draw, times)) as draws:
        for t, drawn in draws:
            x0, label, eps = moved(drawn, device)
            found.append(estimate_at(denoiser, t, x0, eps, label, settings.batch_size))
    return torch.stack(found, 1)


def tables(
    steps: int, times: Sequence[int], entries: Float64[Tensor, "4 time"]
) -> dict[str, TimeTable]:
    """Return the tables over t = 0 … T by name; they are linear between the timesteps."""
    every, known = range(steps + 1), [0, *times]
    rows = entries.cpu().numpy()
    return {k: np.interp(every, known, [0.0, *row]) for k, row in zip(NAMES, rows, strict=True)}
