"""The interface of a training objective: networks, draws, and the losses on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from torch import nn

from ocm_core.rng.batches import BatchRng
from ocm_core.shapes import PerSample

Draws = TypeVar("Draws")  # tensors, in tuples of any depth


class Objective(ABC, Generic[Draws]):
    """Networks to train, with a loss for each."""

    @property
    @abstractmethod
    def networks(self) -> Mapping[str, nn.Module]:
        """Return the networks to train, by name."""
        ...

    @abstractmethod
    def draw(self, rng: BatchRng) -> Draws:
        """Draw a micro-batch; another thread does so ahead of its use."""

    @abstractmethod
    def losses_on(self, drawn: Draws) -> dict[str, PerSample]:
        """Return each network's loss on each sample."""

    def losses(self, rng: BatchRng) -> dict[str, PerSample]:
        """Draw a micro-batch and return the losses on it."""
        return self.losses_on(self.draw(rng))
