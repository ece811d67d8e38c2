"""Batches, and their random numbers: a function of (seed, iteration, row) alone."""

from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from ocm_core.rng.streams import Stream, stream
from ocm_core.shapes import Batch


def batches(count: int, size: int) -> list[range]:
    """Cut `count` items into batches; the last one may be smaller."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


class BatchRng:
    """Random draws of the batch's rows that this process computes; by default all rows."""

    def __init__(
        self,
        seed: int,
        iteration: int,
        batch_size: int,
        device: str = "cpu",
        time: int = 0,
        rows: range | None = None,
    ) -> None:
        """`time` is the timestep of batches that are drawn beside training, for baselines."""
        self.seed, self.iteration, self.batch_size = seed, iteration, batch_size
        self.device, self.time = device, time
        self.rows = range(batch_size) if rows is None else rows

    @property
    def first(self) -> int:
        """Return the place of the first of the rows among the items of all epochs."""
        return self.iteration * self.batch_size + self.rows.start

    def streams(self, purpose: Stream, time: int = 0) -> list[np.random.Generator]:
        return [stream(purpose, self.seed, self.iteration, time=time, part=r) for r in self.rows]

    def _purpose(self, draw: str) -> Stream:
        return Stream[f"BASELINE_{draw}" if self.time else f"BATCH_{draw}"]

    def _stream(self, draw: str) -> np.random.Generator:
        return stream(self._purpose(draw), self.seed, self.iteration, time=self.time)

    @cached_property
    def _sign_streams(self) -> list[np.random.Generator]:
        return self.streams(self._purpose("SIGN"), self.time)

    def items(self, size: int) -> Int[ndarray, " batch"]:
        """Return positions in a set of `size` items: shuffled epochs, one after another."""
        epochs = range(self.first // size, (self.first + len(self.rows) - 1) // size + 1)
        order = np.concatenate([_permutation(self.seed, epoch, size) for epoch in epochs])
        start = self.first - epochs[0] * size
        return order[start : start + len(self.rows)]

    def times(self, steps: int) -> Int[Tensor, " batch"]:
        return self._of_rows(self._stream("TIMES").integers(1, steps + 1, size=self.batch_size))

    def normals(self, shape: tuple[int, ...]) -> Batch:
        drawn = np.empty((len(self.rows), *shape), dtype=np.float32)
        sources = self.streams(self._purpose("NORMAL"), self.time)
        for row, source in zip(drawn, sources, strict=True):
            source.standard_normal(dtype=np.float32, out=row)
        return torch.from_numpy(drawn).to(self.device)

    def uniforms(self) -> Float[Tensor, " batch"]:
        """Draw from [0, 1) for each row."""
        return self._of_rows(self._stream("UNIFORM").random(self.batch_size))

    def seed_torch(self) -> None:
        """Seed torch's own generator, for dropout and the like."""
        key = self._stream("TORCH").integers(2**62)
        torch.manual_seed(int(key) + self.rows.start)

    def signs(self, shape: tuple[int, ...]) -> Batch:
        """Draw ±1; each call draws further ones."""
        drawn = np.stack([s.integers(0, 2, size=shape, dtype=np.int8) for s in self._sign_streams])
        return torch.from_numpy(drawn * 2 - 1).to(self.device, torch.float32)

    def _of_rows(self, values: ndarray) -> Tensor:
        return torch.from_numpy(values[self.rows.start : self.rows.stop]).to(self.device)


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, size: int) -> Int[ndarray, " size"]:
    return stream(Stream.BATCH_ITEMS, seed, epoch).permutation(size)
