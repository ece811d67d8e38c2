"""What every data set gives: splits that are read by ranges, so that none has to fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jaxtyping import Float32, Int64, UInt8
from numpy import ndarray

RawValues = UInt8[ndarray, "n c h w"] | Float32[ndarray, "n d"]  # grey levels, or points
ItemLabels = Int64[ndarray, " item"] | None
Captions = Sequence[str] | None


def distinct(captions: Iterable[str]) -> list[str]:
    """In the order in which they are numbered, where each is a class."""
    return sorted(set(captions))


class Split(Protocol):
    @property
    def labels(self) -> ItemLabels:
        """Of all items, or None where the data set has none."""

    @property
    def captions(self) -> Captions:
        """Of all items, or None where the data set has none."""

    def __len__(self) -> int: ...

    def read(self, rows: range) -> RawValues: ...


@dataclass(frozen=True)
class DataSet:
    splits: Mapping[str, Split]  # "train", "test"
    levels: int | None  # how many grey levels; None for points
    provenance: Mapping[str, Any]  # JSON values: digests of the archives, permutation, crop


@dataclass(frozen=True)
class ArraySplit:
    """A split in memory, or in a memory map."""

    values: RawValues
    labels: ItemLabels = None
    captions: Captions = None

    def __len__(self) -> int:
        return len(self.values)

    def read(self, rows: range) -> RawValues:
        return self.values[rows]  # indices, unlike a slice, refuse rows that do not exist
