"""Tables for `dvc plots`: one column per method, one file per sampler and score."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ocm_core.report.page import Table


def frames(results: xr.Dataset) -> dict[str, Table]:
    found = {}
    for score in results["score"].values:
        one = results.sel(score=score)
        if "covariance_error" in one:
            found[f"covariance_error-{score}"] = _wide(one["covariance_error"], "t")
        for sampler in one["sampler"].values if "mmd" in one else ():
            means = one["mmd"].sel(sampler=sampler).mean("seed")
            found[f"mmd-{sampler}-{score}"] = _wide(means, "steps")
    return found


def _wide(values: xr.DataArray, rows: str) -> Table:
    """Rows along `rows`, a column for each method that is defined there."""
    known = values.dropna("method", how="all").transpose(rows, "method")
    numbers = [[None if np.isnan(v) else v for v in row] for row in known.values.tolist()]
    return Table(
        name=str(values.name),
        columns=(rows, *known["method"].values.tolist()),
        rows=tuple((int(x), *row) for x, row in zip(known[rows].values, numbers, strict=True)),
    )
