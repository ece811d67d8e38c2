"""Shuffled batches from the store, as a function of (seed, iteration).

The order does not depend on whether the set is held in memory or streamed through a buffer, nor on
the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.rng.batches import BatchRng
from ocm_core.rng.streams import Stream, stream
from ocm_core.shapes import Batch
from ocm_core.store.reader import Raw, StoredSplit


class Group(NamedTuple):
    """Chunks that are in memory together, and all their items, shuffled."""

    epoch: int
    number: int
    chunks: tuple[range, ...]
    rows: Int[ndarray, " row"]


class Piece(NamedTuple):
    """Consecutive items of the order that come from one group."""

    group: Group
    rows: Int[ndarray, " n"]


class ShuffledOrder:
    """The order in which a large set is read: shuffled chunks, items shuffled within a buffer.

    An epoch shuffles the chunks and cuts them into groups of `buffer` chunks; the items of a group
    are shuffled among themselves. The item at a position is a function of (seed, position), so that
    a run resumes anywhere, and only one group has to be in memory. If all chunks fit into one
    group, this is the plain shuffle of `BatchRng.items`.
    """

    def __init__(self, chunks: Sequence[range], buffer: int) -> None:
        if buffer < 1:
            raise OcmError(f"buffer = {buffer}: expected at least one chunk")
        self.chunks, self.buffer = chunks, buffer
        self.size = sum(map(len, chunks))
        self.groups = -(-len(chunks) // buffer)
        self._epoch = lru_cache(maxsize=2)(self._new_epoch)
        self._group = lru_cache(maxsize=4)(self._new_group)

    def pieces(self, seed: int, first: int, count: int) -> Iterator[Piece]:
        """Yield the items at the positions [first, first + count), counted through all epochs."""
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
        """Return the next group of the order."""
        if group.number + 1 < self.groups:
            return self._group(seed, group.epoch, group.number + 1)
        return self._group(seed, group.epoch + 1, 0)

    def _new_epoch(self, seed: int, epoch: int) -> list[tuple[range, ...]]:
        order = stream(Stream.STORE_CHUNKS, seed, epoch).permutation(len(self.chunks))
        cuts = range(0, len(order), self.buffer)
        groups = (np.sort(order[cut : cut + self.buffer]) for cut in cuts)
        return [tuple(self.chunks[number] for number in group) for group in groups]

    def _new_group(self, seed: int, epoch: int, number: int) -> Group:
        chunks = self._epoch(seed, epoch)[number]
        rows = np.concatenate([np.arange(chunk.start, chunk.stop) for chunk in chunks])
        source = stream(Stream.BATCH_ITEMS, seed, epoch, part=number)
        return Group(epoch, number, chunks, rows[source.permutation(len(rows))])


class HeldItems(Protocol):
    """Where the items of a batch are taken from."""

    def take(self, seed: int, pieces: Sequence[Piece]) -> Raw:
        """Return the items of the pieces, in their order."""


class StoredItems:
    """Batches of x_0, with labels where there are any."""

    def __init__(self, stored: StoredSplit, order: ShuffledOrder, held: HeldItems) -> None:
        self.stored, self.order, self.held = stored, order, held

    def batch(self, rng: BatchRng) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        pieces = list(self.order.pieces(rng.seed, rng.first, len(rng.rows)))
        raw = self.held.take(rng.seed, pieces)
        noise = rng.streams(Stream.STORE_ROW) if "std" in raw else None
        x0 = self.stored.to_x0(raw, noise)
        labels = None
        if self.stored.labels is not None:
            labels = torch.from_numpy(self.stored.labels[_rows(pieces)]).to(rng.device)
        return torch.from_numpy(x0).to(rng.device), labels


def open_items(
    stored: StoredSplit, *, buffer: int, memory_bytes: int, threads: int = 1
) -> StoredItems:
    """Hold the set in memory if it fits into `memory_bytes`; else stream it through two buffers.

    `buffer`, in chunks, decides the order; the other two do not.
    """
    order = ShuffledOrder(stored.chunks, buffer)
    held = (
        HeldInMemory(stored)
        if stored.bytes <= memory_bytes
        else HeldInBuffer(stored, order, threads)
    )
    return StoredItems(stored, order, held)


class HeldInMemory:
    """All items, read at once."""

    def __init__(self, stored: StoredSplit) -> None:
        self._raw = stored.raw(range(len(stored)))

    def take(self, seed: int, pieces: Sequence[Piece]) -> Raw:
        rows = _rows(pieces)
        return {name: values[rows] for name, values in self._raw.items()}


class HeldInBuffer:
    """The chunks of the last batch, and those of the next group, which are prefetched."""

    def __init__(self, stored: StoredSplit, order: ShuffledOrder, threads: int) -> None:
        self._stored, self._order = stored, order
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="chunks")
        self._read: dict[range, Future[Raw]] = {}

    def take(self, seed: int, pieces: Sequence[Piece]) -> Raw:
        groups = [*(piece.group for piece in pieces), self._order.after(seed, pieces[-1].group)]
        wanted = dict.fromkeys(chunk for group in groups for chunk in group.chunks)
        self._read = {chunk: self._read.get(chunk) or self._begin(chunk) for chunk in wanted}
        return self._stored.gather(_rows(pieces), lambda chunk: self._read[chunk].result())

    def _begin(self, chunk: range) -> Future[Raw]:
        return self._pool.submit(self._stored.raw, chunk)


def _rows(pieces: Sequence[Piece]) -> Int[ndarray, " batch"]:
    return np.concatenate([piece.rows for piece in pieces])
