"""The layout of a store, known before it is written: variables, chunks, shards, exact bytes.

A chunk is the unit of reading, a shard the unit of writing, resuming and hashing: one file each of
`x` (and `std`, `label`), and of `index`, the item's place in its split. Nothing is compressed:
latents and photographs hardly shrink, and so sizes are known beforehand.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import nan, prod
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ocm_core.errors import OcmError

INDEX_ENTRY, CHECKSUM = 16, 4  # bytes that Zarr's sharding adds per chunk and per shard

DType = Literal["uint8", "float16", "float32"]


def store_path(folder: Path, name: str) -> Path:
    """Return the path of the store of a split or of samples in a folder."""
    return folder / f"{name}.zarr"


class Variable(NamedTuple):
    """An array of the store."""

    shape: tuple[int, ...]  # of one item
    dtype: str
    fill: float


@dataclass(frozen=True, kw_only=True)
class StoreLayout:
    """The layout of one store, which holds a contiguous part of a split."""

    items: range  # places in the split
    shape: tuple[int, ...]  # of one item
    dtype: DType
    levels: int | None = None  # grey levels of uint8 pixels; None for points and latents
    labelled: bool = False
    spread: bool = False  # whether the posterior's `std` is kept beside its mean
    chunk: int
    shard: int

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.shard % self.chunk:
            raise OcmError(f"{self}: expected a shard of whole chunks")

    @property
    def variables(self) -> dict[str, Variable]:
        """The arrays in the order of writing: `index` comes last, so its shard marks the end."""
        fill = 0.0 if self.dtype == "uint8" else nan
        names = ("x", "std") if self.spread else ("x",)
        places = ("label", "index") if self.labelled else ("index",)
        variables = dict.fromkeys(names, Variable(self.shape, self.dtype, fill))
        return variables | dict.fromkeys(places, Variable((), "int64", -1))

    @property
    def grid(self) -> tuple[int, int]:
        """The items per chunk and per shard; a small store is one chunk of its own size."""
        count = len(self.items)
        return (max(count, 1),) * 2 if count <= self.chunk else (self.chunk, self.shard)

    @property
    def shards(self) -> list[range]:
        """The items of each shard."""
        starts = range(self.items.start, self.items.stop, self.shard)
        return [range(start, min(start + self.shard, self.items.stop)) for start in starts]

    def bytes_of(self, shards: Iterable[range]) -> int:
        """Return the size of some shards, all variables together."""
        sizes = [prod(v.shape) * np.dtype(v.dtype).itemsize for v in self.variables.values()]
        return sum(shard_bytes(len(shard), size, *self.grid) for shard in shards for size in sizes)


def shard_bytes(items: int, item_bytes: int, chunk: int, shard: int) -> int:
    """Return the size of a shard with some items: whole chunks, their index and its checksum."""
    return -(-items // chunk) * chunk * item_bytes + INDEX_ENTRY * (shard // chunk) + CHECKSUM


def share(part: str, count: int, shard: int) -> range:
    """Return the items that the job `all`, or `2of3`, writes: whole shards, evenly distributed."""
    number, jobs = (1, 1) if part == "all" else map(int, part.split("of"))
    first, stop = (min(-(-count // shard) * n // jobs * shard, count) for n in (number - 1, number))
    return range(first, stop) if first < stop else range(0)  # an empty one begins at a shard too
