"""Shuffled batches of latents: streamed from Zarr, against random rows of a memory map.

And whether loading could be slower than the GPU: compared with DiT-XL/2's training step, a forward
pass and a vector-Jacobian product (the same again), at an A100's peak of 312 TFLOP/s in bfloat16,
which no training reaches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved, seconds
from benchmarks.sampling_head import operations
from ocm_core.rng.batches import BatchRng
from ocm_core.store import writer
from ocm_core.store.reader import StoredItems, open_split

COUNT, SHAPE, BATCH = 16_384, (4, 32, 32), 256
CHUNK, SHARD, BUFFER = 1_024, 16_384, 4
REPEATS = 5
A100_BFLOAT16 = 312e12  # operations per second, at its peak


@dataclass(frozen=True)
class ShuffledLatents:
    """The same latents as a Zarr store and as a memory map."""

    streamed: StoredItems
    mapped: np.memmap[tuple[int, ...], np.dtype[np.float32]]

    def from_store(self) -> Tensor:
        """One epoch; returns the last batch."""
        for iteration in range(len(self.mapped) // BATCH):
            x0, _ = self.streamed.batch(BatchRng(0, iteration, BATCH))
        return x0

    def from_map(self) -> Tensor:
        order = np.random.default_rng(0).permutation(len(self.mapped))
        for first in range(0, len(order), BATCH):
            x0 = torch.from_numpy(self.mapped[order[first : first + BATCH]])
        return x0


@contextmanager
def written(count: int = COUNT) -> Iterator[ShuffledLatents]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        values = np.random.default_rng(0).standard_normal((count, *SHAPE), dtype=np.float32)
        plan = writer.StoreLayout(
            items=range(count), shape=SHAPE, dtype="float32", chunk=CHUNK, shard=SHARD
        )
        read = lambda rows: {"x": values[rows.start : rows.stop]}  # noqa: E731
        writer.write(folder / "train.zarr", plan, read, {})
        values.tofile(folder / "train.bin")
        mapped = np.memmap(folder / "train.bin", np.float32, "r", shape=values.shape)
        stored = open_split([folder], "train")
        yield ShuffledLatents(StoredItems(stored, buffer=BUFFER, memory_bytes=0), mapped)


def _time() -> Measured:
    with written() as latents:
        compared = interleaved(latents.from_store, latents.from_map, REPEATS)
    return compared.measured(latents=COUNT, batch=BATCH, bytes=COUNT * 4 * int(np.prod(SHAPE)))


def _starving() -> Measured:
    network, _ = operations("imagenet256")
    consumed = A100_BFLOAT16 / (2 * network)
    with written() as latents:
        latents.from_store()
        rates = [COUNT / seconds(latents.from_store, time.perf_counter) for _ in range(REPEATS)]
    ratios = sorted(consumed / rate for rate in rates)
    return Measured(
        ratios[len(ratios) // 2],
        ratios[0],
        ratios[-1],
        {
            "forward_flops": network,
            "step_flops": 2 * network,
            "peak_flops": A100_BFLOAT16,
            "latents_a_second_consumed_at_most": consumed,
            "latents_a_second_delivered": float(np.median(rates)),
            "arithmetic": "peak / (2 × forward pass); delivered by wall clock in one process",
        },
    )


BENCHMARKS = [
    Benchmark(
        name="latents_zarr",
        what=f"an epoch of shuffled batches of {BATCH} latents from Zarr",
        baseline="random rows of an `np.memmap`",
        target=5.0,
        measure=_time,
    ),
    Benchmark(
        name="latents_starving",
        what="latents a second that DiT-XL/2 could consume on an A100, of those delivered",
        baseline="what Zarr delivers",
        target=1.0,
        measure=_starving,
    ),
]
