"""CSV files for `dvc plots`: one column per method, one file per measure, sampler and score.

Where an experiment is guided, at its least scale; the metrics have them all.
"""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ocm_core.report.page.document import DataTable
from ocm_core.report.statistics import estimates
from ocm_core.report.statistics.selections import ordered

_MEASURES = ("mmd", "fid", "recall")


def frames(results: xr.Dataset) -> dict[str, DataTable]:
    known = ordered(results)
    least = known.isel(guidance=0) if "guidance" in known.dims else known
    return dict(_frames(least))


def _frames(results: xr.Dataset) -> Iterator[tuple[str, DataTable]]:
    for score in results["score"].values:
        one = results.sel(score=score)
        if "covariance_error" in one:
            yield f"covariance_error-{score}", _wide(one["covariance_error"], "t")
        for chain in one["chain"].values if "nll" in one else ():
            yield f"nll-{chain}-{score}", _wide(one["nll"].sel(chain=chain), "steps")
        for name in [name for name in _MEASURES if name in one]:
            for sampler in one["sampler"].values:
                means = estimates.mean(one[name].sel(sampler=sampler))
                yield f"{name}-{sampler}-{score}", _wide(means, "steps")


def _wide(values: xr.DataArray, rows: str) -> DataTable:
    """Rows along `rows`, a column for each method that is defined there."""
    known = values.dropna("method", how="all").dropna(rows, how="all").transpose(rows, "method")
    return DataTable(
        name=str(values.name),
        columns=(rows, *known["method"].values.tolist()),
        rows=tuple(
            (int(x), *row) for x, row in zip(known[rows].values, known.values.tolist(), strict=True)
        ),
    )
