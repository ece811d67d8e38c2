"""Results as one labelled dataset per experiment: score, sampler, method, steps, guidance, seed.

What a report shows and what `dvc metrics diff` compares are views of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from zarr.errors import UnstableSpecificationWarning

if TYPE_CHECKING:
    from ocm_core.cells import Cell

FILE = "results.zarr"
AXES = ("score", "sampler", "method", "steps", "guidance", "seed")


def table(cells: Iterable[Cell], variables: Iterable[str]) -> xr.Dataset:
    """An empty table over the cells' coordinates; what is not defined stays NaN."""
    known = list(cells)
    coords = {axis: list(dict.fromkeys(getattr(cell, axis) for cell in known)) for axis in AXES}
    shape = [len(values) for values in coords.values()]
    return xr.Dataset({name: (AXES, np.full(shape, np.nan)) for name in variables}, coords=coords)


def save(folder: Path, results: xr.Dataset) -> None:
    with warnings.catch_warnings():
        # names of methods are text, for which Zarr 3 has a stable type only outside xarray
        warnings.simplefilter("ignore", UnstableSpecificationWarning)
        results.to_zarr(folder / FILE, mode="w", consolidated=False, zarr_format=3)


def load(folder: Path) -> xr.Dataset:
    """Its variables by name: a store lists them as its folder does, in any order."""
    results: xr.Dataset = xr.open_zarr(folder / FILE, consolidated=False).load()
    return results[sorted(map(str, results))]
