"""One counter-based random stream per sample index.

Sample i draws the same numbers whatever the batch it sits in, the number of processes, the device
or the step at which a job was restarted. Streams of different purposes never overlap, so that two
covariance methods see the same noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.shapes import Batch

_BLOCK_BYTES = 64 * 2**20
_PURPOSES = {"normal": 0, "sign": 1, "label": 2}


class Noise(Protocol):
    """What a sampler asks for: standard normal draws, and ±1 probes, in a fixed order."""

    def normal(self) -> Batch: ...

    def signs(self) -> Batch: ...


def generator(seed: int, index: int, purpose: str) -> np.random.Generator:
    """Philox keyed by (seed, index); the purpose sits in the counter's high word."""
    if seed < 0 or index < 0:
        raise OcmError(f"seed = {seed}, sample index = {index}: expected both to be ≥ 0")
    counter = [0, 0, 0, _PURPOSES[purpose]]
    return np.random.Generator(np.random.Philox(key=[seed, index], counter=counter))


def draw_labels(seed: int, indices: Sequence[int], classes: int) -> Int[Tensor, " batch"]:
    """Uniform over the classes, each from its sample's own stream."""
    streams = (generator(seed, index, "label") for index in indices)
    return torch.tensor([int(stream.integers(classes)) for stream in streams])


@dataclass
class SampleStreams:
    """Streams of the samples `indices`, drawn a block of steps at a time."""

    seed: int
    indices: Sequence[int]
    shape: tuple[int, ...]
    device: torch.device | str = "cpu"
    first_block: int = 8  # steps drawn at once at first
    _blocks: dict[str, Float[np.ndarray, "steps batch *dims"]] = field(default_factory=dict)
    _used: dict[str, int] = field(default_factory=dict)
    _generators: dict[str, list[np.random.Generator]] = field(default_factory=dict)

    def normal(self) -> Batch:
        return self._next("normal")

    def signs(self) -> Batch:
        return self._next("sign")

    def _next(self, purpose: str) -> Tensor:
        block = self._blocks.get(purpose)
        if block is None or self._used[purpose] == len(block):
            block = self._blocks[purpose] = self._draw(purpose)
            self._used[purpose] = 0
        drawn = block[self._used[purpose]]
        self._used[purpose] += 1
        return torch.from_numpy(drawn).to(self.device)

    def _draw(self, purpose: str) -> Float[np.ndarray, "steps batch *dims"]:
        if purpose not in self._generators:
            self._generators[purpose] = [generator(self.seed, i, purpose) for i in self.indices]
        values = int(np.prod(self.shape))
        # each block is twice the last: few draws waste little, many cost few calls
        wanted = 2 * len(self._blocks.get(purpose, ())) or self.first_block
        steps = max(1, min(wanted, _BLOCK_BYTES // (4 * values * len(self.indices))))
        block = np.empty((len(self.indices), steps, values), dtype=np.float32)
        for row, source in zip(block, self._generators[purpose], strict=True):
            row[:] = _VALUES[purpose](source, (steps, values))
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


_VALUES = {"normal": _normals, "sign": _signs}


@dataclass
class Replay:
    """Noise given beforehand, in the order of use: for tests and for exact comparisons."""

    normals: Sequence[Tensor]
    probes: Sequence[Tensor] = ()
    _normal: int = 0
    _probe: int = 0

    def normal(self) -> Batch:
        self._normal += 1
        return self._take(self.normals, self._normal, "normal")

    def signs(self) -> Batch:
        self._probe += 1
        return self._take(self.probes, self._probe, "probe")

    @staticmethod
    def _take(values: Sequence[Tensor], count: int, what: str) -> Tensor:
        if count > len(values):
            raise OcmError(f"replayed noise has {len(values)} {what} draws; number {count} asked")
        return values[count - 1]
