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

_CHECKSUM = 4  # bytes after the index


class ShardedArray:
    """Sharded and chunked along its first axis, as `store.write` makes it."""

    def __init__(self, path: Path) -> None:
        array: zarr.Array[Any] = zarr.open_array(path, mode="r", zarr_format=3)
        if array.shards is None or array.compressors or array.filters:
            raise OcmError(f"{path}: expected an uncompressed, sharded array; write it again")
        self.path = path
        self.count, *shape = array.shape
        self.shape, self.dtype = tuple(shape), array.dtype.newbyteorder("<")
        self.chunk, self.shard = array.chunks[0], array.shards[0]
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
            raise OcmError(f"{self._file(shard)}: ends too early; run the job that writes it again")

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
        return index[:, 0]

    def _file(self, shard: int) -> Path:
        return self.path.joinpath("c", str(shard), *("0" for _ in self.shape))

    def _check_files(self) -> None:
        """Zarr would read a missing shard as fill values."""
        missing = [s for s in range(-(-self.count // self.shard)) if not self._file(s).exists()]
        if missing:
            raise OcmError(
                f"{self._file(missing[0])}: no such shard ({len(missing)} are missing); run the "
                "job that writes it again"
            )
