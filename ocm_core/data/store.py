"""The labelled Zarr store: one array per split, written whole and read into memory or by chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from numpy import ndarray

from ocm_core.errors import OcmError


def write(folder: Path, splits: dict[str, ndarray], chunk: int = 1024) -> None:
    """Each split as float32 `x` over (item, *axes), uncompressed, in chunks of whole items."""
    for split, values in splits.items():
        axes = [f"axis{i}" for i in range(values.ndim - 1)]
        dataset = xr.Dataset({"x": (["item", *axes], values.astype(np.float32))})
        encoding = {
            "x": {"chunks": (min(chunk, len(values)), *values.shape[1:]), "compressors": None}
        }
        dataset.to_zarr(
            folder / f"{split}.zarr",
            mode="w",
            encoding=encoding,
            consolidated=False,
            zarr_format=3,
        )


def read(folder: Path, split: str) -> ndarray:
    path = folder / f"{split}.zarr"
    if not path.exists():
        raise OcmError(f"{path}: no such split; the stage `encode` writes train and test")
    return np.asarray(xr.open_zarr(path, consolidated=False)["x"].values)
