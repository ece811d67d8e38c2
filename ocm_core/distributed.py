"""Several processes that do one piece of work together, under `torchrun`; or one, alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from ocm_core.errors import OcmError
from ocm_core.progress import Item


@dataclass(frozen=True)
class Rank:
    """This process's place among them."""

    index: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """The one that writes what all have in common."""
        return self.index == 0

    def mine(self, items: Sequence[Item]) -> Sequence[Item]:
        return items[self.index :: self.world_size]

    def rows(self, batch_size: int, accumulate: int) -> list[slice]:
        """This process's micro-batches: equal contiguous pieces of the batch."""
        pieces = self.world_size * accumulate
        if batch_size % pieces:
            raise OcmError(
                f"batch_size = {batch_size} does not divide into {self.world_size} processes × "
                f"accumulate = {accumulate}"
            )
        size = batch_size // pieces
        first = self.index * accumulate
        return [slice(i * size, (i + 1) * size) for i in range(first, first + accumulate)]

    def total(self, values: Iterable[Tensor]) -> None:
        """Sum over the processes, in place."""
        if self.world_size > 1:
            for value in values:
                distributed.all_reduce(value)

    def wait(self) -> None:
        """Until all processes have come this far."""
        if self.world_size > 1:
            distributed.barrier()


def current_rank() -> Rank:
    if distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size())
    return Rank()


def join(local_rank: int) -> None:
    """Meet the other processes that `torchrun` has started; each takes the device of its rank."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
