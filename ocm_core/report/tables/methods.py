"""The methods of an experiment: what each one adds, and how often its variances were clamped."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import xarray as xr

from ocm_core.report.page.document import DataTable
from ocm_core.report.statistics.head_families import HeadFamilies, families_together
from ocm_core.report.statistics.selections import is_guided, unguided

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment, MethodParams


def method_table(
    experiment: Experiment, head_parameters: Mapping[str, int], families: HeadFamilies
) -> DataTable:
    rows = [
        (
            label,
            head_parameters.get(label),
            _extra_work(experiment.methods[label], prod(experiment.shape)),
        )
        for label in families_together(experiment.methods, families)
    ]
    columns = ("method", "parameters", "extra work per step")
    return DataTable("methods", columns, tuple(rows))


def _extra_work(method: MethodParams, dimensions: int) -> str:
    if method.kind == "rademacher":
        return _passes(int(method.options["probes"]))
    if method.kind in ("exact_diag", "exact_full"):
        return _passes(dimensions)
    return "its head" if method.needs == "head" else "none"


def _passes(count: int) -> str:
    return f"{count} backward pass{'' if count == 1 else 'es'}"


def clamped_shares(values: xr.DataArray) -> DataTable | None:
    """The share of variances that were out of range, in percent; none if all were fine."""
    shares = 100 * (values if is_guided(values) else unguided(values)).mean("seed")
    shares = shares.dropna("steps", how="all")
    places = [name for name in ("sampler", "score", "guidance", "method") if name in shares.dims]
    stacked = shares.stack(place=places).transpose("place", "steps")
    touched = stacked.isel(place=(stacked > 0).any("steps"))
    rows = [
        (*place, *map(_rounded, row))
        for place, row in zip(touched["place"].values.tolist(), touched.values, strict=True)
    ]
    columns = (*places, *(f"K = {k}" for k in shares["steps"].values))
    return DataTable("clamped", columns, tuple(rows)) if rows else None


def _rounded(share: float) -> float:
    return float(f"{share:.2g}")
