"""Small splits, and writers of them, for the tests and for the processes that the tests start."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from ocm_core.io.checksums import data_files, sha256_of
from ocm_core.store.writer import DType, ReadShard, StoreLayout, share, write

ATTRS = {"scaling_factor": 0.5, "provenance": {"source": "a test"}}


def values(count: int, shape: tuple[int, ...], dtype: DType, seed: int = 0) -> dict[str, ndarray]:
    source = np.random.default_rng(seed)
    if dtype == "uint8":
        x = source.integers(0, 17, (count, *shape), dtype=np.uint8)
    else:
        x = source.standard_normal((count, *shape)).astype(dtype)
    return {
        "x": x,
        "std": np.abs(source.standard_normal((count, *shape))).astype(dtype),
        "label": source.integers(0, 10, count),
    }


def plan(
    items: range, shape: tuple[int, ...] = (2, 3), dtype: DType = "float32", **changes: Any
) -> StoreLayout:
    levels = 17 if dtype == "uint8" else None
    others = {"labelled": True, "chunk": 4, "shard": 8} | changes
    return StoreLayout(items=items, shape=shape, dtype=dtype, levels=levels, **others)


def reader(of: StoreLayout, data: dict[str, ndarray]) -> ReadShard:
    def read_shard(rows: range) -> dict[str, ndarray]:
        wanted = of.variables.keys() - {"index"}
        return {name: data[name][rows.start : rows.stop] for name in wanted}

    return read_shard


def ranges(count: int, jobs: int, shard: int) -> list[range]:
    return [share(f"{job}of{jobs}", count, shard) for job in range(1, jobs + 1)]


def write_jobs(root: Path, whole: StoreLayout, data: dict[str, ndarray], jobs: int) -> list[Path]:
    """The split cut into jobs, each with its folder."""
    folders = []
    for number, items in enumerate(ranges(len(whole.items), jobs, whole.shard)):
        part = StoreLayout(**{**vars(whole), "items": items})
        folders.append(root / f"{number + 1}of{jobs}")
        write(folders[-1] / "train.zarr", part, reader(part, data), ATTRS)
    return folders


def digests(folder: Path) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): sha256_of(file) for file in data_files(folder)}
