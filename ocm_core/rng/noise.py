"""Noise for samples, a stream per sample index.

Sample i draws the same numbers whatever the batch it sits in, the number of processes, the device
or the step at which a job was restarted. Normal draws and ±1 probes come from streams of their own,
so that two covariance methods see the same noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ocm_core.rng.streams import Purpose, stream
from ocm_core.shapes import Batch

_BLOCK_BYTES = 64 * 2**20


class Noise(Protocol):
    """What a sampler asks for: standard normal draws, and ±1 probes, in a fixed order."""

    def normal(self) -> Batch: ...

    def signs(self) -> Batch: ...


def draw_labels(seed: int, indices: Sequence[int], classes: int) -> Int[Tensor, " batch"]:
    """Uniform over the classes, each from its sample's own stream."""
    sources = (stream(Purpose.SAMPLE_LABEL, seed, index) for index in indices)
    return torch.tensor([int(source.integers(classes)) for source in sources])


class Use(Enum):
    """What samples draw noise for: the purposes of their normal draws and of their probes."""

    SAMPLING = (Purpose.SAMPLE_NORMAL, Purpose.SAMPLE_SIGN)
    TIMING = (Purpose.TIMING_NORMAL, Purpose.TIMING_SIGN)
    LIKELIHOOD = (Purpose.LIKELIHOOD_NORMAL, Purpose.LIKELIHOOD_SIGN)
    DEVIATION = (Purpose.DEVIATION_NORMAL, Purpose.DEVIATION_SIGN)
    COVARIANCE_ERROR = (Purpose.COVARIANCE_ERROR_NORMAL, Purpose.COVARIANCE_ERROR_SIGN)


DrawValues = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


@dataclass
class SampleNoise:
    """Noise of the samples `indices`, drawn a block of steps at a time."""

    seed: int
    indices: Sequence[int]
    shape: tuple[int, ...]
    device: torch.device | str = "cpu"
    use: Use = Use.SAMPLING
    time: int = 0  # the timestep, for the uses that have one
    first_block: int = 8  # steps drawn at once at first
    _blocks: dict[Purpose, Float[np.ndarray, "steps batch *dims"]] = field(default_factory=dict)
    _used: dict[Purpose, int] = field(default_factory=dict)
    _sources: dict[Purpose, list[np.random.Generator]] = field(default_factory=dict)

    def normal(self) -> Batch:
        return self._next(self.use.value[0], _normals)

    def signs(self) -> Batch:
        return self._next(self.use.value[1], _signs)

    def _next(self, purpose: Purpose, values: DrawValues) -> Tensor:
        block = self._blocks.get(purpose)
        if block is None or self._used[purpose] == len(block):
            block = self._blocks[purpose] = self._draw(purpose, values)
            self._used[purpose] = 0
        drawn = block[self._used[purpose]]
        self._used[purpose] += 1
        return torch.from_numpy(drawn).to(self.device)

    def _draw(self, purpose: Purpose, values: DrawValues) -> Float[np.ndarray, "steps batch *dims"]:
        if purpose not in self._sources:
            self._sources[purpose] = [
                stream(purpose, self.seed, index, time=self.time) for index in self.indices
            ]
        size = int(np.prod(self.shape))
        # each block is twice the last: few draws waste little, many cost few calls
        wanted = 2 * len(self._blocks.get(purpose, ())) or self.first_block
        steps = max(1, min(wanted, _BLOCK_BYTES // (4 * size * len(self.indices))))
        block = np.empty((len(self.indices), steps, size), dtype=np.float32)
        for row, source in zip(block, self._sources[purpose], strict=True):
            row[:] = values(source, (steps, size))
        return np.ascontiguousarray(block.swapaxes(0, 1)).reshape(
            steps, len(self.indices), *self.shape
        )


def _normals(source: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return source.standard_normal(shape, dtype=np.float32)


def _signs(source: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    # each step uses whole 32-bit words, so that blocks of steps concatenate
    words = -(-shape[1] // 32)
    bits = np.unpackbits(
        source.integers(0, 2**32, size=(shape[0], words), dtype=np.uint32).view(np.uint8), axis=1
    )
    return bits[:, : shape[1]].astype(np.float32) * 2 - 1
