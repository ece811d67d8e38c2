"""A split as one array of x_0 (scaled pixels, points or latents), and shuffled batches from it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64
from numpy import ndarray
from pydantic import BaseModel, Field, NonNegativeInt
from torch import Tensor

from ocm_core.errors import OcmError
from ocm_core.io.checksums import data_files
from ocm_core.io.reading import reading
from ocm_core.rng.batches import BatchRng
from ocm_core.rng.streams import Stream, stream
from ocm_core.shapes import Batch

Raw = dict[str, ndarray]  # `x`, and `std` where the posterior is kept, as they lie in the store
X0 = Float32[ndarray, "n *dims"]
RowNumbers = Int[ndarray, " n"]
Rows = range | RowNumbers
AGAIN = "run the job that writes it again"
DTYPES = ("uint8", "int64", "float16", "float32")
INDEX_ENTRY, CHECKSUM = 16, 4  # bytes that Zarr's sharding adds per chunk and per shard


def store_path(folder: Path, name: str) -> Path:
    """Return the path of the store of a split or of samples in a folder."""
    return folder / f"{name}.zarr"


def shard_bytes(items: int, item_bytes: int, chunk: int, shard: int) -> int:
    """Return the size of a shard with some items: whole chunks, their index and its checksum."""
    return -(-items // chunk) * chunk * item_bytes + INDEX_ENTRY * (shard // chunk) + CHECKSUM


class ShardedArray:
    """An uncompressed Zarr array, sharded along its first axis, read straight into memory.

    Zarr copies what it reads three times, which takes four times as long.
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
        whole_items = shards and chunks[1:] == shards[1:] == self.shape
        if shards is None or not whole_items or not 0 < chunks[0] <= shards[0]:
            raise OcmError(f"{path}: expected shards and chunks of whole items; {AGAIN}")
        if not plain or self.dtype.name not in DTYPES:
            expected = f"expected {', '.join(DTYPES)}, uncompressed"
            raise OcmError(f"{path}: {expected}, found {self.dtype} or a codec; {AGAIN}")
        self.chunk, self.shard = chunks[0], shards[0]
        self.item_bytes = prod(self.shape) * self.dtype.itemsize
        count = -(-self.count // self.shard)
        for shard in range(count):  # Zarr would read a missing one as fill values
            file, items = self._file(shard), min(self.shard, self.count - shard * self.shard)
            whole = shard_bytes(items, self.item_bytes, self.chunk, self.shard)
            if not file.is_file():
                present = sum(1 for _ in data_files(path / "c"))
                raise OcmError(f"{file}: no such shard (there are {present} of {count}); {AGAIN}")
            if (size := file.stat().st_size) != whole:
                raise OcmError(f"{file}: {size} bytes instead of {whole}; {AGAIN}")

    def read(self, start: int, stop: int) -> ndarray:
        values = np.empty((stop - start, *self.shape), self.dtype)
        for shard in range(start // self.shard, -(-stop // self.shard)):
            base = shard * self.shard
            first, last = max(start, base), min(stop, base + self.shard)
            part = values[first - start : last - start]
            with self._file(shard).open("rb") as file:
                file.seek((first - base) * self.item_bytes)
                if file.readinto(part.data.cast("B")) != part.nbytes:
                    raise OcmError(f"{self._file(shard)}: ends too early; {AGAIN}")
        return values

    def _file(self, shard: int) -> Path:
        return self.path.joinpath("c", str(shard), *("0" for _ in self.shape))


class StoreAttributes(BaseModel, strict=True, extra="allow"):
    """The attributes that reading needs; a store may have more."""

    items: Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2)]
    levels: Annotated[int, Field(ge=2, le=2**16)] | None


class Part(NamedTuple):
    """One store, which holds the items [first, stop) of the split."""

    path: Path
    first: int
    stop: int
    arrays: dict[str, ShardedArray]
    attrs: dict[str, Any]


class StoredSplit:
    """A split, read as one array whatever the number of stores."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts, arrays = parts, parts[0].arrays
        self.attrs = parts[0].attrs  # as given to the writer: scaling factor, provenance
        self.levels: int | None = self.attrs["levels"]
        self.shape = arrays["x"].shape  # of one item
        self.variables = {name: arrays[name] for name in arrays if name in ("x", "std")}
        self.bytes = len(self) * sum(array.item_bytes for array in self.variables.values())
        self.chunks = [  # what is read together, in the order of the items
            range(first, min(first + part.arrays["x"].chunk, part.stop))
            for part in parts
            for first in range(part.first, part.stop, part.arrays["x"].chunk)
        ]

    def __len__(self) -> int:
        return self.parts[-1].stop

    @cached_property
    def labels(self) -> Int64[ndarray, " item"] | None:
        labelled = "label" in self.parts[0].arrays
        return self._slice("label", range(len(self))) if labelled else None

    def raw(self, rows: range) -> Raw:
        """Read contiguous items as they lie in the store; there must be such items."""
        return {name: self._slice(name, rows) for name in self.variables}

    def gather(self, rows: RowNumbers, read: Callable[[range], Raw]) -> Raw:
        """Collect items in any order; `read` is called once for each chunk that holds some."""
        holders = np.searchsorted([chunk.start for chunk in self.chunks], rows, side="right") - 1
        shape = (len(rows), *self.shape)
        gathered = {name: np.empty(shape, array.dtype) for name, array in self.variables.items()}
        for holder in np.unique(holders):
            chunk, chosen = self.chunks[holder], np.flatnonzero(holders == holder)
            for name, values in read(chunk).items():
                gathered[name][chosen] = values[rows[chosen] - chunk.start]
        return gathered

    def read(self, rows: Rows) -> X0:
        """Read x_0; for a stored posterior, its mean."""
        if not len(rows) or not 0 <= np.min(rows) <= np.max(rows) < len(self):
            raise OcmError(f"rows {rows}: expected some of 0 to {len(self) - 1}")
        raw = self.raw(rows) if isinstance(rows, range) else self.gather(rows, self.raw)
        return self.to_x0(raw)

    def all(self) -> X0:
        return self.read(range(len(self)))

    def to_x0(self, raw: Raw, noise: Sequence[np.random.Generator] | None = None) -> X0:
        """Scale grey levels v to 2 v / (levels - 1) - 1; draw latents as mean + std · n.

        `noise` draws n of each item; without it a latent is its mean.
        """
        x = raw["x"].astype(np.float32, copy=False)
        if self.levels is not None:
            return 2 * x / np.float32(self.levels - 1) - 1
        if noise is None:
            return x
        drawn = np.stack([n.standard_normal(self.shape, dtype=np.float32) for n in noise])
        return x + raw["std"] * drawn

    def _slice(self, name: str, rows: range) -> ndarray:
        pieces = []
        for part in self.parts:
            first, stop = max(rows.start, part.first), min(rows.stop, part.stop)
            if first < stop:
                pieces.append(part.arrays[name].read(first - part.first, stop - part.first))
        return np.concatenate(pieces) if len(pieces) > 1 else pieces[0]


def open_split(folders: Sequence[Path], split: str) -> StoredSplit:
    """Open the stores `<folder>/<split>.zarr` of all writers as one split."""
    opened = (_open(store_path(folder, split)) for folder in folders)
    parts = sorted((part for part in opened if part.stop > part.first), key=lambda p: p.first)
    if not parts:
        raise OcmError(f"split {split!r}: no items in {', '.join(map(str, folders))}")
    arrays = [{name: (a.shape, a.dtype) for name, a in part.arrays.items()} for part in parts]
    expected = 0
    for part, kinds in zip(parts, arrays, strict=True):
        if part.first != expected:
            found = f"expected it to begin with item {expected}, found {part.first}"
            raise OcmError(f"{part.path}: {found}; pass the folders of all encode jobs, each once")
        if (part.attrs, kinds) != (parts[0].attrs, arrays[0]):
            raise OcmError(f"{part.path}: written with other settings than {parts[0].path}")
        expected = part.stop
    return StoredSplit(parts)


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
        expected = f"expected x and index of {stop - first} items"
        raise OcmError(f"{path}: {expected}, found {counts}; {AGAIN}")
    return Part(path, first, stop, arrays, attrs)


class Group(NamedTuple):
    """Chunks that are in memory together, and all their items, shuffled."""

    place: int  # among the groups of all epochs
    chunks: list[range]
    rows: Int[ndarray, " row"]


class ShuffledOrder:
    """The order in which a large set is read: shuffled chunks, items shuffled within a buffer.

    An epoch shuffles the chunks and cuts them into groups of `buffer` chunks; the items of a group
    are shuffled among themselves. The item at a position is a function of (seed, position). If all
    chunks fit into one group, this is the plain shuffle of `BatchRng.items`.
    """

    def __init__(self, chunks: Sequence[range], buffer: int) -> None:
        self.chunks, self.buffer, self.size = chunks, buffer, sum(map(len, chunks))
        self._epoch = lru_cache(maxsize=2)(self._new_epoch)
        self.group = lru_cache(maxsize=4)(self._new_group)

    def pieces(self, seed: int, first: int, count: int) -> Iterator[tuple[Group, RowNumbers]]:
        """Yield the items at the positions [first, first + count), with the group of each."""
        position, end = first, first + count
        while position < end:
            epoch, offset = divmod(position, self.size)
            groups = self._epoch(seed, epoch)
            ends = np.cumsum([sum(map(len, chunks)) for chunks in groups])
            number = int(np.searchsorted(ends, offset, side="right"))
            group = self.group(seed, epoch * len(groups) + number)
            start = offset - int(ends[number]) + len(group.rows)
            rows = group.rows[start : start + end - position]
            yield group, rows
            position += len(rows)

    def _new_epoch(self, seed: int, epoch: int) -> list[list[range]]:
        order = stream(Stream.STORE_CHUNKS, seed, epoch).permutation(len(self.chunks))
        cuts = range(0, len(order), self.buffer)
        return [[self.chunks[n] for n in np.sort(order[i : i + self.buffer])] for i in cuts]

    def _new_group(self, seed: int, place: int) -> Group:
        epoch, number = divmod(place, -(-len(self.chunks) // self.buffer))
        chunks = self._epoch(seed, epoch)[number]
        rows = np.concatenate([np.arange(chunk.start, chunk.stop) for chunk in chunks])
        source = stream(Stream.BATCH_ITEMS, seed, epoch, part=number)
        return Group(place, chunks, rows[source.permutation(len(rows))])


class StoredItems:
    """Batches of x_0 and labels, the same from memory, if the set fits into it, and from disk."""

    def __init__(self, stored: StoredSplit, *, buffer: int, memory_bytes: int) -> None:
        self.stored, self.order = stored, ShuffledOrder(stored.chunks, buffer)
        self._held = stored.raw(range(len(stored))) if stored.bytes <= memory_bytes else None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="chunks")
        self._read: dict[range, Future[Raw]] = {}  # of the last batch and of the next group

    def batch(self, rng: BatchRng) -> tuple[Batch, Int[Tensor, " batch"] | None]:
        """Return the items of an iteration, on its device."""
        stored = self.stored
        groups, parts = zip(*self.order.pieces(rng.seed, rng.first, len(rng.rows)), strict=True)
        rows = np.concatenate(parts)
        if self._held is not None:
            raw = {name: values[rows] for name, values in self._held.items()}
        else:
            following = self.order.group(rng.seed, groups[-1].place + 1)
            wanted = dict.fromkeys(c for group in (*groups, following) for c in group.chunks)
            read = self._read  # all that are not wanted are forgotten
            self._read = {c: read.get(c) or self._pool.submit(stored.raw, c) for c in wanted}
            raw = stored.gather(rows, lambda chunk: self._read[chunk].result())
        noise = rng.streams(Stream.STORE_ROW) if "std" in raw else None
        x0 = torch.from_numpy(stored.to_x0(raw, noise)).to(rng.device)
        if stored.labels is None:
            return x0, None
        return x0, torch.from_numpy(stored.labels[rows]).to(rng.device)
