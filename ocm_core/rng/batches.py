"""The random numbers of one training batch, a function of (seed, iteration) alone.

Nothing has to be remembered for an exact resume, and a batch is the same whatever the number of
processes: each draws the whole batch and keeps its rows.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from ocm_core.rng.streams import Purpose, stream
from ocm_core.shapes import Batch


class BatchRng:
    def __init__(
        self, seed: int, iteration: int, batch_size: int, device: str = "cpu", time: int = 0
    ) -> None:
        """`time` is the timestep of batches that are drawn beside training, for baselines."""
        self.seed, self.iteration, self.batch_size = seed, iteration, batch_size
        self.device, self.time = device, time
        self._signs = self._stream("SIGN")

    def _stream(self, draw: str) -> np.random.Generator:
        purpose = Purpose[f"BASELINE_{draw}" if self.time else f"BATCH_{draw}"]
        return stream(purpose, self.seed, self.iteration, time=self.time)

    def items(self, size: int) -> Int[ndarray, " batch"]:
        """Positions in a set of `size` items: shuffled epochs, one after another."""
        first = self.iteration * self.batch_size
        epochs = range(first // size, (first + self.batch_size - 1) // size + 1)
        order = np.concatenate([_permutation(self.seed, epoch, size) for epoch in epochs])
        start = first - epochs[0] * size
        return order[start : start + self.batch_size]

    def times(self, steps: int) -> Int[Tensor, " batch"]:
        times = self._stream("TIMES").integers(1, steps + 1, size=self.batch_size)
        return torch.from_numpy(times).to(self.device)

    def normals(self, shape: tuple[int, ...]) -> Batch:
        shape = (self.batch_size, *shape)
        drawn = self._stream("NORMAL").standard_normal(shape, dtype=np.float32)
        return torch.from_numpy(drawn).to(self.device)

    def uniforms(self) -> Float[Tensor, " batch"]:
        return torch.from_numpy(self._stream("UNIFORM").random(self.batch_size)).to(self.device)

    def seed_torch(self, first_row: int) -> None:
        """For what draws by itself inside a network, such as dropout."""
        key = self._stream("TORCH").integers(2**62)
        torch.manual_seed(int(key) + first_row)

    def signs(self, shape: tuple[int, ...]) -> Batch:
        """±1; each call draws further ones."""
        drawn = self._signs.integers(0, 2, size=(self.batch_size, *shape), dtype=np.int8)
        return torch.from_numpy(drawn * 2 - 1).to(self.device, torch.float32)


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, size: int) -> Int[ndarray, " size"]:
    return stream(Purpose.BATCH_ITEMS, seed, epoch).permutation(size)
