"""Tables for `dvc plots`: one column per method, one file per measure, sampler and score.

Where an experiment is guided, a file per guidance scale too.
"""

from __future__ import annotations

from collections.abc import Iterator

import xarray as xr

from ocm_core.report import stats
from ocm_core.report.blocks import Table
from ocm_core.report.views import is_guided, ordered, unguided

_MEASURES = ("mmd", "fid", "recall")


def frames(results: xr.Dataset) -> dict[str, Table]:
    return dict(_frames(ordered(results)))


def _frames(results: xr.Dataset) -> Iterator[tuple[str, Table]]:
    for score in results["score"].values:
        one = results.sel(score=score)
        for name, rows in (("covariance_error", "t"), ("nll", "steps")):
            if name in one:
                yield f"{name}-{score}", _wide(one[name], rows)
        for name in [name for name in _MEASURES if name in one]:
            for suffix, values in _by_scale(one, name):
                for sampler in values["sampler"].values:
                    means = stats.mean(values.sel(sampler=sampler))
                    yield f"{name}-{sampler}-{score}{suffix}", _wide(means, "steps")


def _by_scale(results: xr.Dataset, name: str) -> Iterator[tuple[str, xr.DataArray]]:
    if not is_guided(results):
        yield "", unguided(results)[name]
        return
    for scale in results["guidance"].values:
        yield f"-cfg{scale:g}", results[name].sel(guidance=scale)


def _wide(values: xr.DataArray, rows: str) -> Table:
    """Rows along `rows`, a column for each method that is defined there."""
    known = values.dropna("method", how="all").dropna(rows, how="all").transpose(rows, "method")
    return Table(
        name=str(values.name),
        columns=(rows, *known["method"].values.tolist()),
        rows=tuple(
            (int(x), *row) for x, row in zip(known[rows].values, known.values.tolist(), strict=True)
        ),
    )
