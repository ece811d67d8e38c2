"""Write the labelled Zarr store that every stage after `encode` reads, shard by shard.

A chunk is the unit of reading, a shard the unit of writing and resuming: one file each of `x` (and
`std`, `label`), and of `index`, the item's place in its split. Nothing is compressed, so sizes are
known beforehand. Zarr writes a shard to a temporary file and renames it. Once it is on the disk for
good, its checksum is recorded; it counts as done as long as checksum and layout are the same. Other
files are written again, so the bytes are those of an uninterrupted run. A shard has one writer.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from math import nan, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy import ndarray

from ocm_core.errors import OcmError
from ocm_core.io.atomic import check_space, room_for, write_bytes, write_text
from ocm_core.io.checksums import data_files, is_intact, record_checksum, record_of
from ocm_core.prefetch import in_background
from ocm_core.progress import Progress
from ocm_core.store.reader import ShardedArray, shard_bytes

ShardValues = Mapping[str, ndarray]  # `x`, and `std` and `label` where they are planned
ReadShard = Callable[[range], ShardValues]  # places in the split -> their values
DType = Literal["uint8", "float16", "float32"]
LOG = logging.getLogger("ocm")


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


def share(part: str, count: int, shard: int) -> range:
    """Return the items that the job `all`, or `2of3`, writes: whole shards, evenly distributed."""
    number, jobs = (1, 1) if part == "all" else map(int, part.split("of"))
    first, stop = (min(-(-count // shard) * n // jobs * shard, count) for n in (number - 1, number))
    return range(first, stop) if first < stop else range(0)  # an empty one begins at a shard too


def write(
    path: Path,
    plan: StoreLayout,
    read_shard: ReadShard,
    attrs: Mapping[str, Any],
    progress: Progress[range] = iter,
) -> None:
    """Write the missing shards, if they fit on the disk, and check the whole store."""
    begin(path, plan, attrs)
    write_shards(path, plan, missing(path, plan), read_shard, progress)
    verify(path, plan)


def missing(path: Path, plan: StoreLayout) -> list[range]:
    """Return the shards with a file that is missing or has changed."""
    key = record_of(path).read_text()
    files = {s: [shard_file(path, plan, n, s) for n in plan.variables] for s in plan.shards}
    return [shard for shard, parts in files.items() if not all(is_intact(f, key) for f in parts)]


def write_shards(
    path: Path,
    plan: StoreLayout,
    shards: Sequence[range],
    read_shard: ReadShard,
    progress: Progress[range] = iter,
) -> None:
    """Write some shards, each while the next one is read."""
    remaining = plan.bytes_of(shards)
    last: Future[Any] = in_background(int)  # nothing yet
    try:
        for shard in progress(list(shards)):
            check_space(path, remaining)  # each time: other writers share the disk
            values = read_shard(shard)
            last.result()
            last = in_background(_write_shard, path, plan, shard, values, remaining)
            remaining -= plan.bytes_of([shard])
        last.result()
    finally:
        wait([last])  # what was read is written, whatever stopped the rest


def verify(path: Path, plan: StoreLayout) -> None:
    """Check that every shard exists in full and that the items are the planned ones in order."""
    arrays = {name: ShardedArray(path / name) for name in plan.variables}
    if not np.array_equal(arrays["index"].read(0, len(plan.items)), plan.items):
        raise OcmError(f"{path}: expected the items {plan.items} in order; delete it to start anew")


def shard_file(path: Path, plan: StoreLayout, name: str, shard: range) -> Path:
    """Return the file of one variable's shard."""
    number = (shard.start - plan.items.start) // plan.shard
    return path.joinpath(name, "c", str(number), *("0" for _ in plan.variables[name].shape))


def begin(path: Path, plan: StoreLayout, attrs: Mapping[str, Any]) -> None:
    """Make the store with its metadata, or tidy up after an interrupted run."""
    metadata = {path / name: content for name, content in _metadata(plan, attrs).items()}
    key, made_for = hashlib.sha256(b"".join(metadata.values())).hexdigest(), record_of(path)
    others = [f for f, content in metadata.items() if f.exists() and f.read_bytes() != content]
    if others and not (made_for.is_file() and made_for.read_bytes() == key.encode()):
        raise OcmError(f"{path}: holds something else than planned; delete it to start anew")
    for file in others:
        LOG.warning("%s: has changed since an interrupted run wrote it; writing it again", file)
        file.unlink()
    shards = (shard_file(path, plan, n, shard) for shard in plan.shards for n in plan.variables)
    for file in set(data_files(path)).difference(metadata, shards):
        file.unlink()  # half-written, or of another origin
    for file, content in metadata.items():
        if not file.exists():
            write_bytes(file, content)
    write_text(made_for, key)  # tells the store from one of another layout


def _metadata(plan: StoreLayout, attrs: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the metadata files as Zarr writes them; the group's comes last."""
    import zarr
    from zarr.core.buffer import Buffer
    from zarr.storage import MemoryStore

    held: dict[str, Buffer] = {}
    group = zarr.create_group(MemoryStore(held), zarr_format=3)
    coordinates = [name for name in ("index", "label") if name in plan.variables]
    chunk, shard = plan.grid
    for name, (shape, dtype, fill) in plan.variables.items():
        group.create_array(
            name,
            shape=(len(plan.items), *shape),
            dtype=dtype,
            chunks=(chunk, *shape),
            shards=(shard, *shape),
            compressors=None,
            filters=None,
            fill_value=fill,
            dimension_names=["item", *(f"axis{i}" for i in range(len(shape)))],
            # xarray's way to tell coordinates from data
            attributes={} if name in coordinates else {"coordinates": " ".join(coordinates)},
        )
    own = {"items": [plan.items.start, plan.items.stop], "levels": plan.levels}
    group.attrs.put({**attrs, **own})
    return {name: held[name].to_bytes() for name in sorted(held, reverse=True)}


def _write_shard(
    path: Path, plan: StoreLayout, shard: range, values: ShardValues, remaining: int
) -> None:
    import zarr

    arrays = {**values, "index": np.arange(shard.start, shard.stop)}
    checked = {name: _checked(path, plan, name, shard, arrays[name]) for name in plan.variables}
    key, first = record_of(path).read_text(), plan.items.start
    with room_for(path, remaining):
        for name, cast in checked.items():
            file = shard_file(path, plan, name, shard)
            file.unlink(missing_ok=True)  # Zarr would merge the last, shorter shard with it
            with zarr.config.set({"array.write_empty_chunks": True}):  # zeros are data too
                array = zarr.open_array(path / name, mode="r+", zarr_format=3)
            array[shard.start - first : shard.stop - first] = cast
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
            record_checksum(file, key)


def _checked(path: Path, plan: StoreLayout, name: str, shard: range, values: ndarray) -> ndarray:
    """Return the values in the planned type; raise an error that names the first bad item."""
    planned = plan.variables[name]
    if values.shape != (shape := (len(shard), *planned.shape)):
        found = f"{name} of items {shard} has shape {values.shape}"
        raise OcmError(f"{path}: {found}, planned was {shape}")
    rounds = np.dtype(planned.dtype).kind == "f"
    if not np.can_cast(values.dtype, planned.dtype, "same_kind" if rounds else "safe"):
        raise OcmError(f"{path}: {name} is {values.dtype}, planned was {planned.dtype}")
    cast = values.astype(planned.dtype)
    limit = plan.levels if name == "x" and plan.levels is not None else np.inf
    bad = ~(np.isfinite(cast) & (cast < limit)).reshape(len(shard), -1).all(1)
    if bad.any():
        expected = f"not finite as {planned.dtype} or not below levels = {plan.levels}"
        raise OcmError(f"{path}: {name} of item {shard[int(np.argmax(bad))]} is {expected}")
    return cast
