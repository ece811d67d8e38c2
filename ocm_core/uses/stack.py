"""A stack of bits (asymmetric numeral systems), and Gaussians to code its symbols with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import constriction
import numpy as np
from jaxtyping import Bool, Float64, Int, UInt32
from numpy import ndarray
from torch import Tensor

from ocm_core.errors import OcmError

Symbols = Int[ndarray, " symbol"]
Words = UInt32[ndarray, " word"]
PER_BIN = 64  # places of a mean
PER_OCTAVE = 64  # of a deviation
_SPARE = 2  # words that no pop may come down to


class ExhaustedError(Exception):
    """The stack has too few bits to pop from."""


@dataclass(frozen=True)
class Gaussians:
    """Independent Gaussians over the whole numbers `least` … `most`, counted from `origin`.

    The masses are those of bins of width 1, and the outer ones reach to ∓∞. A number in an outer
    bin is followed by how far `beyond` it lies, from 0 on, where that is possible.
    """

    mean: Float64[ndarray, " symbol"]
    deviation: Float64[ndarray, " symbol"]
    least: int
    most: int
    origin: Symbols | int = 0
    beyond: int = 0

    @classmethod
    def rounded(cls, mean: Tensor, variance: Tensor, least: int, most: int) -> Gaussians:
        """Return Gaussians whose parameters stand on a grid, where both sides find the same."""
        places, octaves = (mean * PER_BIN).round() / PER_BIN, variance.log2() * (PER_OCTAVE / 2)
        deviation = (octaves.round() / PER_OCTAVE).exp2().expand_as(mean)
        if not (places.isfinite().all() and deviation.isfinite().all() and deviation.all()):
            raise OcmError("codec: the network's output is not finite, and no code follows from it")
        return cls(places.flatten().numpy(), deviation.flatten().numpy(), least, most)

    def around_means(self, reach: int, largest: int = 0) -> Gaussians:
        """Return the same within `reach` of each mean, for numbers whose largest is known.

        Each bin has a mass of 2⁻²⁴ at least: few bins leave it where it belongs.
        """
        origin = np.round(self.mean).clip(self.least, self.most).astype(np.int32)
        mean, beyond = self.mean - origin, 2 * largest
        return replace(self, mean=mean, least=-reach, most=reach, origin=origin, beyond=beyond)

    def outer(self, symbols: Symbols) -> Bool[ndarray, " symbol"]:
        """Tell which of the counted symbols are followed by another."""
        ends: Bool[ndarray, " symbol"] = (symbols == self.least) | (symbols == self.most)
        return ends & (self.beyond > 0)


class Stack:
    """Bits that symbols are pushed on and popped from; to pop from random bits is to draw."""

    def __init__(self, words: Words) -> None:
        self._coder = constriction.stream.stack.AnsCoder(words)

    @classmethod
    def upon(cls, content: bytes) -> Stack:
        """Return a stack that has these bytes at its bottom."""
        words = np.frombuffer(content + bytes(-len(content) % 4), "<u4").astype(np.uint32)
        stack = cls.__new__(cls)
        stack._coder = constriction.stream.stack.AnsCoder(words, seal=True)
        return stack

    def push(self, symbols: Symbols, given: Gaussians) -> None:
        """Add symbols: each costs -log₂ of its mass."""
        bins = constriction.stream.model.QuantizedGaussian(given.least, given.most)
        counted = (symbols - given.origin).astype(np.int32)
        inner = counted.clip(given.least, given.most)
        if (outer := given.outer(inner)).any():
            even = constriction.stream.model.Uniform(given.beyond + 1)
            self._coder.encode_reverse(np.abs(counted - inner)[outer], even)
        self._coder.encode_reverse(inner, bins, given.mean, given.deviation)

    def pop(self, given: Gaussians) -> Symbols:
        """Take symbols, one for each Gaussian."""
        bins = constriction.stream.model.QuantizedGaussian(given.least, given.most)
        symbols = self._decoded(bins, given.mean, given.deviation)
        if (outer := given.outer(symbols)).any():
            even = constriction.stream.model.Uniform(given.beyond + 1)
            symbols[outer] += np.sign(symbols[outer]) * self._decoded(even, int(outer.sum()))
        return symbols + given.origin

    def scramble(self, pattern: Symbols) -> None:
        """Flip bits at its top by a pattern of 16-bit numbers; to do so twice is to do nothing."""
        even = constriction.stream.model.Uniform(1 << 16)
        self._coder.encode_reverse(self._decoded(even, len(pattern)) ^ pattern, even)

    def _decoded(self, *how: Any) -> Symbols:
        symbols: Symbols = self._coder.decode(*how)
        if self._coder.num_words() <= _SPARE:
            raise ExhaustedError
        return symbols

    @property
    def bits(self) -> int:
        """Return how many bits it holds."""
        return int(self._coder.num_valid_bits())

    @property
    def words(self) -> Words:
        """Return all that it holds."""
        words: Words = self._coder.get_compressed()
        return words

    @property
    def bottom(self) -> bytes:
        """Return the bytes that it stands upon, once all symbols are popped; filled up by zeros."""
        words: Words = self._coder.get_compressed(unseal=True)
        return words.astype("<u4").tobytes()
