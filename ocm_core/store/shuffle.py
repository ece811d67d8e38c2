"""The order in which a large set is read: shuffled chunks, and items shuffled within a buffer.

An epoch shuffles the chunks and cuts them into groups of `buffer` chunks; the items of a group are
shuffled among themselves. What stands at a position is a function of (seed, position), so that a
run resumes anywhere, and only one group has to be in memory. If all chunks fit into one group, this
is the plain shuffle of `BatchRng.items`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from ocm_core.errors import OcmError
from ocm_core.rng.streams import Purpose, stream


class Group(NamedTuple):
    """The chunks that are in memory together, and all their items, shuffled."""

    epoch: int
    number: int
    chunks: tuple[range, ...]
    rows: Int[ndarray, " row"]


class Piece(NamedTuple):
    """Consecutive items of the order that come from one group."""

    group: Group
    rows: Int[ndarray, " n"]


class ShuffledOrder:
    def __init__(self, chunks: Sequence[range], buffer: int) -> None:
        if buffer < 1:
            raise OcmError(f"buffer = {buffer}: expected at least one chunk")
        self.chunks, self.buffer = chunks, buffer
        self.size = sum(map(len, chunks))
        self.groups = -(-len(chunks) // buffer)
        self._epoch = lru_cache(maxsize=2)(self._new_epoch)
        self._group = lru_cache(maxsize=4)(self._new_group)

    def pieces(self, seed: int, first: int, count: int) -> Iterator[Piece]:
        """The items at the positions [first, first + count) of all epochs in a row."""
        position, end = first, first + count
        while position < end:
            epoch, offset = divmod(position, self.size)
            ends = np.cumsum([sum(map(len, group)) for group in self._epoch(seed, epoch)])
            number = int(np.searchsorted(ends, offset, side="right"))
            group = self._group(seed, epoch, number)
            start = offset - (int(ends[number - 1]) if number else 0)
            rows = group.rows[start : start + end - position]
            yield Piece(group, rows)
            position += len(rows)

    def after(self, seed: int, group: Group) -> Group:
        if group.number + 1 < self.groups:
            return self._group(seed, group.epoch, group.number + 1)
        return self._group(seed, group.epoch + 1, 0)

    def _new_epoch(self, seed: int, epoch: int) -> list[tuple[range, ...]]:
        order = stream(Purpose.STORE_CHUNKS, seed, epoch).permutation(len(self.chunks))
        cuts = range(0, len(order), self.buffer)
        groups = (np.sort(order[cut : cut + self.buffer]) for cut in cuts)
        return [tuple(self.chunks[number] for number in group) for group in groups]

    def _new_group(self, seed: int, epoch: int, number: int) -> Group:
        chunks = self._epoch(seed, epoch)[number]
        rows = np.concatenate([np.arange(chunk.start, chunk.stop) for chunk in chunks])
        source = stream(Purpose.BATCH_ITEMS, seed, epoch, part=number)
        return Group(epoch, number, chunks, rows[source.permutation(len(rows))])
