"""Items of an uncompressed, sharded Zarr array, read from its files straight into memory.

A shard is its chunks, then an index of (offset, bytes) per chunk, then a checksum. Zarr copies what
it reads three times, which is what a training run would wait for: it takes four times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from jaxtyping import UInt64
from numpy import ndarray

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.io.seals import pieces

_CHECKSUM = 4  # bytes after the index
AGAIN = "run the job that writes it again"
DTYPES = ("uint8", "int64", "float16", "float32")


class ShardedArray:
    """Sharded and chunked along its first axis, as `store.write` makes it."""

    def __init__(self, path: Path) -> None:
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

    def read(self, start: int, stop: int) -> ndarray:
        values = np.empty((stop - start, *self.shape), self.dtype)
        for first, last in self._within_chunks(start, stop):
            self._fill(values[first - start : last - start], first)
        return values

    def _fill(self, values: ndarray, row: int) -> None:
        """From one chunk, whose items lie one after another."""
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
            file.seek(-(16 * entries + _CHECKSUM), 2)
            index = np.frombuffer(file.read(16 * entries), "<u8").reshape(entries, 2)
            used = index[: -(-self._items(shard) // self.chunk), 0]
            if (used > file.tell() - index.nbytes).any():
                raise OcmError(f"{self._file(shard)}: its index points outside of it; {AGAIN}")
        return used

    def _file(self, shard: int) -> Path:
        return self.path.joinpath("c", str(shard), *("0" for _ in self.shape))

    def _items(self, shard: int) -> int:
        return min(self.shard, self.count - shard * self.shard)

    def _check_files(self) -> None:
        """Zarr would read a missing shard as fill values; and no more is read than is there."""
        shards = -(-self.count // self.shard)
        there = sum(1 for _ in pieces(self.path / "c"))
        missing = [s for s in range(min(shards, there + 1)) if not self._file(s).is_file()]
        if missing:
            raise OcmError(
                f"{self._file(missing[0])}: no such shard (there are {there} of {shards}); {AGAIN}"
            )
        for shard in range(shards):
            file, items = self._file(shard), -(-self._items(shard) // self.chunk) * self.chunk
            index = 16 * (self.shard // self.chunk) + _CHECKSUM
            if (size := file.stat().st_size) != items * self.item_bytes + index:
                raise OcmError(
                    f"{file}: {size} bytes instead of {items * self.item_bytes + index}; {AGAIN}"
                )
