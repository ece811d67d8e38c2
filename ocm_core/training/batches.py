"""Batches of noisy data to fit to, as a function of (seed, iteration)."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.rng.batches import BatchRng
from ocm_core.shapes import Batch, Times


class Items(Protocol):
    """A set to draw batches' rows from: x_0, and labels where there are any."""

    def batch(self, rng: BatchRng) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        """Return the items of a batch's rows."""


@dataclass(frozen=True)
class InMemory:
    """A set of items in memory."""

    x0: Batch
    labels: Int[Tensor, " item"] | None = None

    def batch(self, rng: BatchRng) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        rows = torch.from_numpy(rng.items(len(self.x0)))
        labels = None if self.labels is None else self.labels[rows].to(rng.device)
        return self.x0[rows].to(rng.device), labels


@dataclass(frozen=True)
class DroppedLabels:
    """The same items as a network takes them: unlabelled, or some with the null class as label."""

    items: Items
    network: ScoreNetwork

    def batch(self, rng: BatchRng) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        x0, labels = self.items.batch(rng)
        if labels is None or not self.network.conditional:
            return x0, None
        if self.network.null_label is None:
            return x0, labels
        null = torch.full_like(labels, self.network.null_label)
        return x0, torch.where(rng.uniforms() < self.network.label_dropout, null, labels)


class NoisyDraws(NamedTuple):
    """The draws of a noisy micro-batch: items, timesteps, noise and ±1 probes."""

    x0: Batch
    label: Int[Tensor, " batch"] | None
    t: Times
    eps: Batch
    probes: tuple[Batch, ...]

    def noisy(self, schedule: Schedule) -> Batch:
        """x_t = √ᾱ_t x_0 + √b_t ε."""
        return q_sample(self.x0, self.eps, *schedule.marginal_at(self.t, self.x0))


def noisy_draws(
    items: Items, schedule: Schedule, rng: BatchRng, t: Times | None = None, probes: int = 0
) -> NoisyDraws:
    """Draw what a noisy batch is made of, at these timesteps or at random ones."""
    x0, label = items.batch(rng)
    t = rng.times(schedule.steps) if t is None else t
    shape = tuple(x0.shape[1:])
    signs = tuple(rng.signs(shape) for _ in range(probes))
    return NoisyDraws(x0, label, t, rng.normals(shape), signs)
