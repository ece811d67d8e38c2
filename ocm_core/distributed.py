"""Several processes that work together under `torchrun`, or one alone."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
from torch import Tensor, distributed

from ocm_core.errors import OcmError
from ocm_core.progress import Item

Decision = TypeVar("Decision")


@dataclass(frozen=True)
class Rank:
    """This process's rank."""

    index: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes what all have in common."""
        return self.index == 0

    def mine(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return the items that this process works on."""
        return items[self.index :: self.world_size]

    def rows(self, batch_size: int, accumulate: int) -> list[range]:
        """Return this process's micro-batches: equal contiguous pieces of the batch."""
        pieces = self.world_size * accumulate
        if batch_size % pieces:
            parts = f"{self.world_size} processes × accumulate = {accumulate}"
            raise OcmError(f"batch_size = {batch_size} does not divide into {parts}")
        size = batch_size // pieces
        mine = range(self.index * accumulate, (self.index + 1) * accumulate)
        return [range(i * size, (i + 1) * size) for i in mine]

    def total(self, values: Iterable[Tensor]) -> None:
        """Sum over the processes, in place; all values travel in one bucket."""
        if self.world_size == 1 or not (held := list(values)):
            return
        bucket = torch.cat([value.flatten() for value in held])
        distributed.all_reduce(bucket)
        sums = torch.split_with_sizes(bucket, [value.numel() for value in held])
        for value, summed in zip(held, sums, strict=True):
            value.copy_(summed.view_as(value))

    def agreed(self, decide: Callable[[], Decision]) -> Decision:
        """Return in every process what the first decides: nodes may see a disk differently."""
        if self.world_size == 1:
            return decide()
        decision: list[Decision | None] = [decide() if self.is_first else None]
        distributed.broadcast_object_list(decision)
        return cast(Decision, decision[0])

    def wait(self) -> None:
        """Wait until all processes have come this far."""
        if self.world_size > 1:
            distributed.barrier()


def current_rank() -> Rank:
    """Return this process's rank; without `torchrun`, that of a process alone."""
    if distributed.is_available() and distributed.is_initialized():
        return Rank(distributed.get_rank(), distributed.get_world_size())
    return Rank()


@contextmanager
def joined(local_rank: int) -> Iterator[None]:
    """Work beside the other processes that `torchrun` has started; each takes its rank's device.

    The timeout is longer than any wait: `torchrun` notices a process that dies.
    """
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(days=7))
    yield
    distributed.barrier()
    distributed.destroy_process_group()
