"""Writing the labelled Zarr store that every stage after `encode` reads, shard by shard.

Zarr writes a shard to a temporary file and renames it, so a killed writer leaves whole files or
none. A shard counts as done when all its files have their planned size; `index` is written last,
after the others are on the disk for good. What else lies there is removed and written again: the
bytes at the end are those of an uninterrupted run. Two writers in one shard would lose data: a
shard has one writer, and a split has a store for each job, which `open_split` reads as one.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy import ndarray

from ocm_core.errors import OcmError
from ocm_core.progress import Progress
from ocm_core.store.layout import StoreLayout, check_space

ShardValues = Mapping[str, ndarray]  # `x`, and `std` and `label` where they are planned
ReadShard = Callable[[range], ShardValues]  # places in the split -> their values
ArrayLayout = tuple[tuple[int, ...], str, tuple[int, ...], tuple[int, ...] | None]


def write(
    path: Path,
    plan: StoreLayout,
    read_shard: ReadShard,
    attrs: Mapping[str, Any],
    progress: Progress[range] = iter,
) -> None:
    """Write what is not there yet, as long as all of it fits on the disk, and check the whole."""
    begin(path, plan, attrs)
    write_shards(path, plan, missing(path, plan), read_shard, progress)
    verify(path, plan)


def missing(path: Path, plan: StoreLayout) -> list[range]:
    return [shard for shard in plan.shards if unfinished(path, plan, shard)]


def write_shards(
    path: Path,
    plan: StoreLayout,
    shards: Sequence[range],
    read_shard: ReadShard,
    progress: Progress[range] = iter,
) -> None:
    """Some of the shards; processes that share a store each take their own."""
    remaining = plan.bytes_of(shards)
    for shard in progress(list(shards)):
        check_space(path, remaining)  # each time: other writers share the disk
        _write_shard(path, plan, shard, read_shard(shard))
        remaining -= plan.bytes_of([shard])


def unfinished(path: Path, plan: StoreLayout, shard: range) -> list[Path]:
    """The files of a shard that are missing or not of their planned size."""
    files = {name: shard_file(path, plan, name, shard) for name in plan.variables}
    return [
        file
        for name, file in files.items()
        if not file.exists() or file.stat().st_size != plan.file_bytes(name, shard)
    ]


def verify(path: Path, plan: StoreLayout) -> None:
    """Every shard is there, and the items are the planned ones in their order."""
    lacking = [file for shard in plan.shards for file in unfinished(path, plan, shard)]
    if lacking:
        raise OcmError(
            f"{lacking[0]}: missing or not of its planned size ({len(lacking)} such files); "
            "run the job again, it writes what is missing"
        )
    index = zarr.open_array(path / "index", mode="r", zarr_format=3)[:]
    if not np.array_equal(index, plan.items):
        raise OcmError(f"{path}: expected the items {plan.items} in order; delete it to start anew")


def shard_file(path: Path, plan: StoreLayout, name: str, shard: range) -> Path:
    number = (shard.start - plan.items.start) // plan.shard
    return path.joinpath(name, "c", str(number), *("0" for _ in plan.variables[name].shape))


def _attributes(plan: StoreLayout, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives them back."""
    own = {"items": [plan.items.start, plan.items.stop], "levels": plan.levels}
    values: dict[str, Any] = json.loads(json.dumps({**attrs, **own}))
    return values


def begin(path: Path, plan: StoreLayout, attrs: Mapping[str, Any]) -> None:
    """Make the store with its metadata, or tidy up what an interrupted run has left."""
    attributes = _attributes(plan, attrs)
    if not _has_attributes(path):
        shutil.rmtree(path, ignore_errors=True)
        _create(path, plan, attributes)
    group = zarr.open_group(path, mode="r", use_consolidated=False, zarr_format=3)
    if group.attrs.asdict() != attributes or _layout(group) != _planned_layout(plan):
        raise OcmError(f"{path}: holds something else than planned; delete it to start anew")
    for partial in path.rglob("*.partial"):  # Zarr's name for a file that is being written
        partial.unlink()


def _has_attributes(path: Path) -> bool:
    """They are written after the rest of the metadata and before the first shard."""
    file = path / "zarr.json"
    return file.exists() and bool(json.loads(file.read_text())["attributes"])


def _create(path: Path, plan: StoreLayout, attributes: Mapping[str, Any]) -> None:
    group = zarr.create_group(path, zarr_format=3)
    coordinates = [name for name in ("index", "label") if name in plan.variables]
    for name, (shape, dtype, chunks, shards) in _planned_layout(plan).items():
        group.create_array(
            name,
            shape=shape,
            dtype=dtype,
            chunks=chunks,
            shards=shards,
            compressors=None,
            filters=None,
            fill_value=plan.variables[name].fill,
            dimension_names=["item", *(f"axis{i}" for i in range(len(shape) - 1))],
            # xarray's way to tell coordinates from data
            attributes={} if name in coordinates else {"coordinates": " ".join(coordinates)},
        )
    group.attrs.put(dict(attributes))


def _planned_layout(plan: StoreLayout) -> dict[str, ArrayLayout]:
    count, (chunk, shard) = len(plan.items), plan.grid
    return {
        name: ((count, *v.shape), v.dtype, (chunk, *v.shape), (shard, *v.shape))
        for name, v in plan.variables.items()
    }


def _layout(group: zarr.Group) -> dict[str, ArrayLayout]:
    return {
        name: (array.shape, str(array.dtype), array.chunks, array.shards)
        for name, array in group.arrays()
    }


def _write_shard(path: Path, plan: StoreLayout, shard: range, values: ShardValues) -> None:
    found = {**values, "index": np.arange(shard.start, shard.stop)}
    if found.keys() != plan.variables.keys():
        raise OcmError(
            f"{path}: planned are {', '.join(plan.variables)}, given were {', '.join(found)}"
        )
    checked = {name: _checked(path, plan, name, shard, found[name]) for name in plan.variables}
    for name, array in checked.items():
        file = shard_file(path, plan, name, shard)
        try:
            _write_file(path / name, plan, shard, file, array)
        except OSError as error:
            raise OcmError(
                f"{file}: {error.strerror}; make room or look at your quota, and run again: "
                "finished shards are kept"
            ) from error


def _write_file(folder: Path, plan: StoreLayout, shard: range, file: Path, values: ndarray) -> None:
    file.unlink(missing_ok=True)  # Zarr would merge the last, shorter shard with what is there
    with zarr.config.set({"array.write_empty_chunks": True}):  # a chunk of zeros is data too
        array = zarr.open_array(folder, mode="r+", zarr_format=3)
    array[shard.start - plan.items.start : shard.stop - plan.items.start] = values
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _checked(path: Path, plan: StoreLayout, name: str, shard: range, values: ndarray) -> ndarray:
    """The values in the planned type, or an error that names the first bad item."""
    planned = plan.variables[name]
    if values.shape != (len(shard), *planned.shape):
        raise OcmError(
            f"{path}: {name} of items {shard} has shape {values.shape}, planned was "
            f"{(len(shard), *planned.shape)}"
        )
    rounds = np.dtype(planned.dtype).kind == "f"
    if not np.can_cast(values.dtype, planned.dtype, "same_kind" if rounds else "safe"):
        raise OcmError(f"{path}: {name} is {values.dtype}, planned was {planned.dtype}")
    cast = values.astype(planned.dtype)
    limit = plan.levels if name == "x" and plan.levels is not None else np.inf
    bad = ~(np.isfinite(cast) & (cast < limit)).reshape(len(shard), -1).all(1)
    if bad.any():
        raise OcmError(
            f"{path}: {name} of item {shard[int(np.argmax(bad))]} is not finite as "
            f"{planned.dtype} or not below levels = {plan.levels}"
        )
    return cast
