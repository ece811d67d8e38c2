"""What is fitted to: batches of noisy data, as a function of (seed, iteration)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ocm_core.diffusion.schedule import Schedule
from ocm_core.shapes import Batch, PerSample, Times
from ocm_core.training.draws import Draws


class Objective(Protocol):
    """What a training loop needs: networks, and the loss per sample of each on a micro-batch."""

    @property
    def networks(self) -> Mapping[str, nn.Module]: ...

    def losses(self, draws: Draws, rows: slice) -> dict[str, PerSample]: ...


@dataclass(frozen=True)
class Items:
    """A set in memory: x_0, and labels where there are any."""

    x0: Batch
    labels: Int[Tensor, " item"] | None = None

    def batch(self, draws: Draws) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        rows = torch.from_numpy(draws.items(len(self.x0)))
        labels = None if self.labels is None else self.labels[rows].to(draws.device)
        return self.x0[rows].to(draws.device), labels


@dataclass(frozen=True)
class Diffused:
    """A noisy micro-batch: x_t = √ᾱ_t x_0 + √b_t ε."""

    x0: Batch
    label: Int[Tensor, " batch"] | None
    t: Times
    eps: Batch
    x: Batch


def diffuse(items: Items, schedule: Schedule, draws: Draws, rows: slice) -> Diffused:
    x0, label = items.batch(draws)
    t, eps = draws.times(schedule.steps), draws.normals(tuple(x0.shape[1:]))
    signal = schedule.at(schedule.alpha_bar, t, x0).sqrt()
    x = signal * x0 + schedule.at(schedule.b, t, x0).sqrt() * eps
    return Diffused(x0[rows], None if label is None else label[rows], t[rows], eps[rows], x[rows])
