"""Shuffled batches from the store, as a function of (seed, iteration).

The order is one and the same whether the set is held in memory or streamed through a buffer, and
whatever the number of threads: where the items are held is a matter of speed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from ocm_core.rng.batches import BatchRng
from ocm_core.rng.streams import Purpose
from ocm_core.shapes import Batch
from ocm_core.store.reader import Raw, StoredSplit
from ocm_core.store.shuffle import Piece, ShuffledOrder


class HeldItems(Protocol):
    """Where the items of a batch are taken from."""

    def take(self, seed: int, pieces: Sequence[Piece]) -> Raw: ...


class StoredItems:
    """Batches of x_0, with labels where there are any."""

    def __init__(self, stored: StoredSplit, order: ShuffledOrder, held: HeldItems) -> None:
        self.stored, self.order, self.held = stored, order, held

    def batch(self, rng: BatchRng) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        pieces = list(self.order.pieces(rng.seed, rng.first, len(rng.rows)))
        raw = self.held.take(rng.seed, pieces)
        noise = rng.streams(Purpose.STORE_ROW) if "std" in raw else None
        x0 = self.stored.to_x0(raw, noise)
        labels = None
        if self.stored.labels is not None:
            labels = torch.from_numpy(self.stored.labels[_rows(pieces)]).to(rng.device)
        return torch.from_numpy(x0).to(rng.device), labels


def open_items(
    stored: StoredSplit, *, buffer: int, memory_bytes: int, threads: int = 1
) -> StoredItems:
    """From memory where the set fits into `memory_bytes`; else through two buffers of chunks.

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
    def __init__(self, stored: StoredSplit) -> None:
        self._raw = stored.raw(range(len(stored)))

    def take(self, seed: int, pieces: Sequence[Piece]) -> Raw:
        rows = _rows(pieces)
        return {name: values[rows] for name, values in self._raw.items()}


class HeldInBuffer:
    """The chunks that the last batch came from, and those of the next group, read ahead."""

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
