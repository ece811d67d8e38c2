"""What a training loop fits: networks, what a micro-batch consists of, and the losses on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from torch import nn

from ocm_core.rng.batches import BatchRng
from ocm_core.shapes import PerSample

Draws = TypeVar("Draws")  # tensors, in tuples of any depth


class Objective(ABC, Generic[Draws]):
    @property
    @abstractmethod
    def networks(self) -> Mapping[str, nn.Module]: ...

    @abstractmethod
    def draw(self, rng: BatchRng) -> Draws:
        """What a micro-batch takes from the data and from chance; another thread makes it ahead."""

    @abstractmethod
    def losses_on(self, drawn: Draws) -> dict[str, PerSample]:
        """Of each network."""

    def losses(self, rng: BatchRng) -> dict[str, PerSample]:
        return self.losses_on(self.draw(rng))
