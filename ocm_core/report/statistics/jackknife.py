"""One seed with errors: what the stage `evaluate_jackknife` has found, in the place of seeds.

A value v whose jackknife deviates by dᵢ becomes n numbers, v - (n - 1) dᵢ. Their mean is v, and the
standard error of their mean is the jackknife's; so it is with the differences of two methods. All
that compares methods seed by seed can then compare them block by block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan

import xarray as xr

from ocm_core.report.statistics.image_results import CellMean, ImageResults

_PREFIX = "jackknife_"


def is_jackknifed(results: xr.Dataset) -> bool:
    return "block" in results.dims


def replicated(results: xr.Dataset) -> xr.Dataset:
    """With the axis of seeds as long as there are blocks."""
    blocks = results.sizes["block"]
    one = results.isel(seed=0, drop=True)
    found = {
        name: (one[name] - (blocks - 1) * deviations.isel(seed=0, drop=True)).rename(block="seed")
        for name, deviations in _deviations(results).items()
    }
    if "clamped" in results:  # no measure, and never compared
        found["clamped"] = one["clamped"].expand_dims({"seed": blocks})
    return results.drop_dims(["seed", "block"]).assign(found)


def _deviations(results: xr.Dataset) -> dict[str, xr.DataArray]:
    """By the name of the measure."""
    names = [str(name) for name in results if str(name).startswith(_PREFIX)]
    return {name.removeprefix(_PREFIX): results[name] for name in names}


@dataclass(frozen=True)
class JackknifedResults(ImageResults):
    """Results of one seed, replicated."""

    @property
    def small_print(self) -> str:
        blocks = self.dataset.sizes["seed"]
        return (
            f"Features of {self.space_name}; {self.count} samples a cell, of one seed; ± one "
            f"standard error, by a jackknife over {blocks} blocks of them."
        )

    def cells(self, key: str) -> list[CellMean]:
        """One seed has no spread over seeds."""
        return [replace(cell, deviation=nan) for cell in super().cells(key)]
