"""Noise for samples: the numbers of sample i are the same in any batch, process and device.

Normal draws and ±1 probes have streams of their own: two covariance methods see the same noise.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import prod
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ocm_core.prefetch import in_background, moved
from ocm_core.rng.streams import Stream, stream
from ocm_core.shapes import Batch

_BLOCK_BYTES = 64 * 2**20
_FIRST_BLOCK = 8  # steps drawn at once at first, where nobody knows how many there will be


class Noise(Protocol):
    """A source of standard normal draws and ±1 probes, in a fixed order."""

    def normal(self) -> Batch:
        """Return the next standard normal draw."""

    def signs(self) -> Batch:
        """Return the next ±1 probe."""


class NoiseFor(Enum):
    """The streams of a use's normal draws and probes."""

    SAMPLING = (Stream.SAMPLE_NORMAL, Stream.SAMPLE_SIGN)
    SELECTION = (Stream.SELECTION_NORMAL, Stream.SELECTION_SIGN)
    TIMING = (Stream.TIMING_NORMAL, Stream.TIMING_SIGN)
    LIKELIHOOD = (Stream.LIKELIHOOD_NORMAL, Stream.LIKELIHOOD_SIGN)
    DEVIATION = (Stream.DEVIATION_NORMAL, Stream.DEVIATION_SIGN)
    TIMESTEPS = (Stream.TIMESTEPS_NORMAL, Stream.TIMESTEPS_SIGN)
    PATHS = (Stream.PATH_NORMAL, Stream.PATH_SIGN)
    FORWARD = (Stream.FORWARD_NORMAL, Stream.FORWARD_SIGN)
    RESTORATION = (Stream.RESTORE_NORMAL, Stream.RESTORE_SIGN)
    MEASUREMENT = (Stream.MEASUREMENT_NORMAL, Stream.MEASUREMENT_SIGN)
    OBSERVED = (Stream.OBSERVED_NORMAL, Stream.OBSERVED_SIGN)
    COVARIANCE_ERROR = (Stream.COVARIANCE_ERROR_NORMAL, Stream.COVARIANCE_ERROR_SIGN)


DrawValues = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass
class SampleNoise:
    """Noise of the samples `indices`, drawn a block of steps at a time, ahead of its use."""

    seed: int
    indices: Sequence[int]
    shape: tuple[int, ...]
    device: torch.device | str = "cpu"
    use: NoiseFor = NoiseFor.SAMPLING
    time: int = 0  # the timestep, for the uses that have one
    draws: int = 0  # so many normal ones will be asked for: they are drawn ahead, from now on

    def __post_init__(self) -> None:
        normal, sign = self.use.value
        self._normals = _Blocks(self, normal, _normals, self.draws)
        self._signs = _Blocks(self, sign, _signs, 0)

    def normal(self) -> Batch:
        return self._normals.next()

    def signs(self) -> Batch:
        return self._signs.next()


class SetNoise:
    """Noise of points that always come together, from one stream."""

    def __init__(
        self, seed: int, shape: tuple[int, int], device: torch.device | str, use: NoiseFor
    ) -> None:
        self.shape, self.device = shape, device
        self._normal, self._sign = (stream(purpose, seed) for purpose in use.value)

    def normal(self) -> Batch:
        return torch.from_numpy(_normals(self._normal, self.shape)).to(self.device)

    def signs(self) -> Batch:
        return torch.from_numpy(_signs(self._sign, self.shape)).to(self.device)


class _Blocks:
    """The draws of one purpose: announced ones are drawn ahead, others in blocks that double."""

    def __init__(self, noise: SampleNoise, purpose: Stream, values: DrawValues, draws: int) -> None:
        self.shape, self.device = (len(noise.indices), *noise.shape), noise.device
        self.streams = purpose, noise.seed, noise.indices, noise.time
        self.values, self.left = values, draws
        self.used, self.steps = 0, 0
        self.block: Float[Tensor, "steps batch *dims"] | None = None
        self.coming: Future[Tensor] | None = None
        if draws:
            self._begin(1)

    def next(self) -> Batch:
        if self.block is None or self.used == len(self.block):
            coming = self.coming or self._begin(2 * self.steps or _FIRST_BLOCK)
            block, self.coming = coming.result(), None
            if self.left:
                self._begin(self.left, used_up=self.block)
            self.block, self.used = block, 0
        self.used += 1
        return moved(self.block[self.used - 1], self.device)

    def _begin(self, steps: int, used_up: Tensor | None = None) -> Future[Tensor]:
        """At most so many steps, and no more than the memory of a block holds."""
        self.steps = max(1, min(steps, _BLOCK_BYTES // (4 * prod(self.shape))))
        self.left = max(0, self.left - self.steps)
        self.coming = in_background(self._draw, self.steps, used_up)
        return self.coming

    def _draw(self, steps: int, used_up: Tensor | None) -> Float[Tensor, "steps batch *dims"]:
        """`used_up` is let go here: to give much memory back takes milliseconds."""
        del used_up
        pinned = torch.device(self.device).type == "cuda"
        block = torch.empty(steps, *self.shape, pin_memory=pinned)
        rows = block.numpy().reshape(steps, self.shape[0], -1).swapaxes(0, 1)
        for row, source in zip(rows, self._sources, strict=True):
            row[:] = self.values(source, row.shape)
        return block

    @cached_property
    def _sources(self) -> list[np.random.Generator]:
        purpose, seed, indices, time = self.streams
        return [stream(purpose, seed, index, time=time) for index in indices]


def _normals(source: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return source.standard_normal(shape, dtype=np.float32)


def _signs(source: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    # each step uses whole 32-bit words, so that blocks of steps concatenate
    size = shape[0], -(-shape[1] // 32)
    words = source.integers(0, 2**32, size=size, dtype=np.uint32)
    bits = np.unpackbits(words.view(np.uint8), axis=1)
    return bits[:, : shape[1]].astype(np.float32) * 2 - 1
