"""Monte-Carlo moments of the noise prediction, per timestep, with standard errors.

Γ_t = E‖ε̂‖² / d as published. Since E ε² = 1, the mean of ε² - ε̂² over the same draws is an
unbiased 1 - Γ_t too, and at large t, where ε̂ ≈ ε, its error is smaller by orders of magnitude:
1 - Γ_t is 1e-4 there and would drown in the noise of Γ_t.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import q_sample
from ocm_core.distributed import Rank
from ocm_core.prefetch import moved, pinned, prefetch
from ocm_core.progress import Progress
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.experiment import MomentsParams as Settings
from ocm_core.shapes import Batch, Labels, TimeTable
from ocm_core.training.batches import Items

_KEEP_EVERY = 100

Entries = Float64[Tensor, "4"]  # of all tables at one timestep, on the device


@dataclass(frozen=True)
class Moments:
    """Tables over t = 0 … T (entry 0 is 0) and their standard errors over images."""

    gamma: TimeTable
    gamma_error: TimeTable
    one_minus_gamma: TimeTable
    one_minus_gamma_error: TimeTable

    @classmethod
    def empty(cls, steps: int) -> Moments:
        """All NaN but for t = 0: what is not yet computed can be told from what is."""
        tables = (np.append(0.0, np.full(steps, np.nan)) for _ in range(4))
        return cls(*tables)

    def take(self, fresh: dict[int, Entries]) -> None:
        """Put fresh entries at their timesteps into the tables; this waits for the device."""
        if fresh:
            columns = torch.stack(list(fresh.values()), dim=1).cpu().numpy()
            for table, column in zip(vars(self).values(), columns, strict=True):
                table[list(fresh)] = column
            fresh.clear()

    def joined(self, other: Moments) -> Moments:
        """Fill in what is missing from another table."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Moments(*(np.where(np.isnan(mine), theirs, mine) for mine, theirs in pairs))

    def missing(self, times: Collection[int]) -> list[int]:
        """Return those of the timesteps that have no estimate."""
        return [t for t in times if np.isnan(self.one_minus_gamma[t])]

    def between(self, times: Collection[int]) -> Moments:
        """Return tables that are linear between these timesteps."""
        every, known = range(len(self.gamma)), [0, *times]
        return Moments(*(np.interp(every, known, table[known]) for table in vars(self).values()))


def grid(settings: Settings, steps: int) -> list[int]:
    """Return the timesteps at which moments are estimated."""
    points = min(settings.points or steps, steps)
    return [round(t) for t in np.linspace(1, steps, points).tolist()]


@torch.no_grad()
def estimate_at(
    denoiser: Denoiser, t: int, x0: Batch, eps: Batch, label: Labels = None, batch_size: int = 0
) -> Entries:
    """Estimate the entries at t from images x_0 and noise, `batch_size` (0: all) at a time."""
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
    denoiser: Denoiser,
    items: Items,
    settings: Settings,
    *,
    device: str = "cpu",
    progress: Progress[int] = iter,
    begun: Moments | None = None,
    keep: Callable[[Moments], None] = lambda _: None,
    rank: Rank = Rank(),  # noqa: B008 - frozen
) -> Moments:
    """Estimate the tables of noisy items; `begun` is continued, and handed to `keep` on the way."""
    moments = begun or Moments.empty(denoiser.schedule.steps)
    times = grid(settings, denoiser.schedule.steps)
    fresh: dict[int, Entries] = {}

    def draw(t: int) -> tuple[int, tuple[Batch, Labels, Batch]]:
        rng = BatchRng(settings.seed, t, settings.draws)  # the timestep's own stream
        x0, label = items.batch(rng)
        return t, pinned((x0, label, rng.normals(tuple(x0.shape[1:]))), device)

    with closing(prefetch(draw, progress(rank.mine(moments.missing(times))))) as draws:
        for t, drawn in draws:
            x0, label, eps = moved(drawn, device)
            fresh[t] = estimate_at(denoiser, t, x0, eps, label, settings.batch_size)
            if len(fresh) == _KEEP_EVERY:
                moments.take(fresh)
                keep(moments)
    moments.take(fresh)
    return moments
