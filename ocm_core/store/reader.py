"""A split as one array of x_0 (scaled pixels, points or latents), from one store or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float32, Int, Int64, UInt64
from numpy import ndarray
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from ocm_core.errors import OcmError
from ocm_core.io.checksums import data_files
from ocm_core.io.reading import reading
from ocm_core.store.layout import CHECKSUM, INDEX_ENTRY, store_path

Raw = dict[str, ndarray]  # `x`, and `std` where the posterior is kept, as they lie in the store
X0 = Float32[ndarray, "n *dims"]
Rows = range | Int[ndarray, " n"]
AGAIN = "run the job that writes it again"
DTYPES = ("uint8", "int64", "float16", "float32")


class ShardedArray:
    """An uncompressed Zarr array, sharded along its first axis, read straight into memory.

    A shard is its chunks, then an index of (offset, bytes) per chunk, then a checksum. Zarr copies
    what it reads three times, which takes four times as long, and a training run would wait for it.
    """

    def __init__(self, path: Path) -> None:
        import zarr

        with reading(path, "a sharded Zarr array", AGAIN):
            array: zarr.Array[Any] = zarr.open_array(path, mode="r", zarr_format=3)
            self.count, *shape = array.shape
            chunks, shards = array.chunks, array.shards
            plain = not (array.compressors or array.filters)
            self.dtype = array.dtype.newbyteorder("<")
        self.path, self.shape = path, tuple(shape)
        whole_items = shards is not None and chunks[1:] == shards[1:] == self.shape
        if shards is None or not whole_items or not 0 < chunks[0] <= shards[0]:
            raise OcmError(f"{path}: expected shards and chunks of whole items; {AGAIN}")
        if not plain or self.dtype.name not in DTYPES:
            raise OcmError(
                f"{path}: expected numbers ({', '.join(DTYPES)}), uncompressed, found {self.dtype}"
                f"{'' if plain else ', compressed or filtered'}; {AGAIN}"
            )
        self.chunk, self.shard = chunks[0], shards[0]
        self._offsets = lru_cache(maxsize=None)(self._read_offsets)
        self._check_files()

    @property
    def item_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def _index_bytes(self) -> int:
        return INDEX_ENTRY * (self.shard // self.chunk) + CHECKSUM

    def read(self, start: int, stop: int) -> ndarray:
        """Read the items [start, stop)."""
        values = np.empty((stop - start, *self.shape), self.dtype)
        for first, last in self._within_chunks(start, stop):
            self._fill(values[first - start : last - start], first)
        return values

    def _fill(self, values: ndarray, row: int) -> None:
        """Read consecutive items of one chunk."""
        shard, within = divmod(row, self.shard)
        chunk, item = divmod(within, self.chunk)
        offset = int(self._offsets(shard)[chunk]) + item * self.item_bytes
        with self._file(shard).open("rb") as file:
            file.seek(offset)
            read = file.readinto(values.data.cast("B"))
        if read != values.nbytes:
            raise OcmError(f"{self._file(shard)}: ends too early; {AGAIN}")

    def _within_chunks(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        while start < stop:
            end = min(stop, (start // self.chunk + 1) * self.chunk)
            yield start, end
            start = end

    def _read_offsets(self, shard: int) -> UInt64[ndarray, " chunk"]:
        entries = self.shard // self.chunk
        with self._file(shard).open("rb") as file:
            file.seek(-self._index_bytes, 2)
            index = np.frombuffer(file.read(INDEX_ENTRY * entries), "<u8").reshape(entries, 2)
            used = index[: -(-self._items(shard) // self.chunk), 0]
            if (used > file.tell() - index.nbytes).any():
                raise OcmError(f"{self._file(shard)}: its index points outside of it; {AGAIN}")
        return used

    def _file(self, shard: int) -> Path:
        return self.path.joinpath("c", str(shard), *("0" for _ in self.shape))

    def _items(self, shard: int) -> int:
        return min(self.shard, self.count - shard * self.shard)

    def _check_files(self) -> None:
        """Check that every shard exists in full; Zarr would read a missing one as fill values."""
        shards = -(-self.count // self.shard)
        present = sum(1 for _ in data_files(self.path / "c"))
        missing = [s for s in range(min(shards, present + 1)) if not self._file(s).is_file()]
        if missing:
            file = self._file(missing[0])
            raise OcmError(f"{file}: no such shard (there are {present} of {shards}); {AGAIN}")
        for shard in range(shards):
            file, items = self._file(shard), -(-self._items(shard) // self.chunk) * self.chunk
            expected = items * self.item_bytes + self._index_bytes
            if (size := file.stat().st_size) != expected:
                raise OcmError(f"{file}: {size} bytes instead of {expected}; {AGAIN}")


class StoreAttributes(BaseModel):
    """The attributes that reading needs; a store may have more."""

    model_config = ConfigDict(strict=True, extra="allow")

    items: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)]
    levels: Annotated[int, Field(ge=2, le=2**16)] | None


@dataclass(frozen=True)
class Part:
    """One store, which holds the items [first, stop) of the split."""

    path: Path
    first: int
    stop: int
    arrays: dict[str, ShardedArray]
    attrs: dict[str, Any]

    @property
    def chunks(self) -> Iterator[range]:
        size = self.arrays["x"].chunk
        for first in range(self.first, self.stop, size):
            yield range(first, min(first + size, self.stop))


@dataclass(frozen=True)
class StoredSplit:
    """A split, read as one array whatever the number of stores."""

    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return self.parts[-1].stop

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes given to the writer: scaling factor, provenance."""
        return self.parts[0].attrs

    @property
    def levels(self) -> int | None:
        levels: int | None = self.attrs["levels"]
        return levels

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one item."""
        return self.parts[0].arrays["x"].shape

    @property
    def variables(self) -> list[str]:
        return [name for name in ("x", "std") if name in self.parts[0].arrays]

    @property
    def bytes(self) -> int:
        """The size in memory, as stored."""
        return len(self) * sum(self.parts[0].arrays[name].item_bytes for name in self.variables)

    @cached_property
    def chunks(self) -> list[range]:
        """The units of reading, in the order of the items."""
        return [chunk for part in self.parts for chunk in part.chunks]

    @cached_property
    def _firsts(self) -> Int64[ndarray, " chunk"]:
        return np.array([chunk.start for chunk in self.chunks])

    @cached_property
    def labels(self) -> Int64[ndarray, " item"] | None:
        if "label" not in self.parts[0].arrays:
            return None
        return self._slice("label", range(len(self)))

    def raw(self, rows: range) -> Raw:
        """Read contiguous items as they lie in the store."""
        return {name: self._slice(name, rows) for name in self.variables}

    def gather(self, rows: Int[ndarray, " n"], read: Callable[[range], Raw]) -> Raw:
        """Collect items in any order; `read` is called once for each chunk that holds some."""
        self._check_rows(rows.min(initial=0), rows.max(initial=-1))
        holders = np.searchsorted(self._firsts, rows, side="right") - 1
        arrays = self.parts[0].arrays
        gathered = {n: np.empty((len(rows), *self.shape), arrays[n].dtype) for n in self.variables}
        for holder in np.unique(holders):
            chosen = np.flatnonzero(holders == holder)
            for name, values in read(self.chunks[holder]).items():
                gathered[name][chosen] = values[rows[chosen] - self._firsts[holder]]
        return gathered

    def read(self, rows: Rows) -> X0:
        """Read x_0; for a stored posterior, its mean."""
        return self.to_x0(
            self.raw(rows) if isinstance(rows, range) else self.gather(rows, self.raw)
        )

    def all(self) -> X0:
        """Read x_0 of every item."""
        return self.read(range(len(self)))

    def to_x0(self, raw: Raw, noise: Sequence[np.random.Generator] | None = None) -> X0:
        """Scale grey levels v to 2 v / (levels - 1) - 1; draw latents as mean + std · n.

        `noise` draws n of each item; without it a latent is its mean.
        """
        x = raw["x"].astype(np.float32, copy=False)
        if self.levels is not None:
            return 2 * x / np.float32(self.levels - 1) - 1
        if noise is not None:
            drawn = np.stack([n.standard_normal(self.shape, dtype=np.float32) for n in noise])
            return x + raw["std"] * drawn
        return x

    def _slice(self, name: str, rows: range) -> ndarray:
        self._check_rows(rows.start, rows[-1] if rows else -1)
        pieces = [
            part.arrays[name].read(
                max(rows.start, part.first) - part.first, min(rows.stop, part.stop) - part.first
            )
            for part in self.parts
            if rows.start < part.stop and part.first < rows.stop
        ]
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]

    def _check_rows(self, first: int, last: int) -> None:
        if not 0 <= first <= last < len(self):
            raise OcmError(f"rows {first} to {last}: expected some of 0 to {len(self) - 1}")


def open_split(folders: Sequence[Path], split: str) -> StoredSplit:
    """Open the stores `<folder>/<split>.zarr` of all writers as one split."""
    opened = (_open(store_path(folder, split)) for folder in folders)
    parts = sorted((part for part in opened if part.stop > part.first), key=lambda p: p.first)
    if not parts:
        raise OcmError(f"split {split!r}: no items in {', '.join(map(str, folders))}")
    for part, expected in zip(parts, [0, *(part.stop for part in parts)], strict=False):
        if part.first != expected:
            raise OcmError(
                f"{part.path}: expected it to begin with item {expected}, found {part.first}; "
                "pass the folders of all encode jobs, each once"
            )
        if _kind(part) != _kind(parts[0]):
            raise OcmError(f"{part.path}: written with other settings than {parts[0].path}")
    return StoredSplit(tuple(parts))


def _kind(part: Part) -> object:
    return part.attrs, {n: (a.shape, a.dtype) for n, a in part.arrays.items()}


def _open(path: Path) -> Part:
    import zarr

    if not path.exists():
        raise OcmError(f"{path}: no such store; the stage `encode` writes train and test")
    with reading(path, "a Zarr store with the place of its items", AGAIN):
        group = zarr.open_group(path, mode="r", use_consolidated=False, zarr_format=3)
        attrs: dict[str, Any] = group.attrs.asdict()
        names = list(group.array_keys())
        StoreAttributes.model_validate(attrs)
    (first, stop), arrays = attrs.pop("items"), {name: ShardedArray(path / name) for name in names}
    counts = {name: array.count for name, array in arrays.items()}
    if not {"x", "index"} <= counts.keys() or set(counts.values()) != {stop - first}:
        raise OcmError(
            f"{path}: expected x and index of {stop - first} items, found {counts}; {AGAIN}"
        )
    return Part(path, first, stop, arrays, attrs)
