"""The bound on the likelihood against the number of steps, whole and term by term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import DataTable, Figure, Plot, Value

UNIT = "bits/dim"
_TERMS = {
    "prior": "prior: how far q(x_T | x₀) is from pure noise",
    "steps": "steps: the KL divergences of all reverse steps",
    "decoder": "decoder: the last step, onto the data",
}


def bound(results: xr.Dataset, styles: MethodStyles, count: int, *, density: bool) -> Figure:
    """`density`: what is diffused is continuous, and has no grey levels to give bits for."""
    means, errors = results["nll"], results["nll_se"]
    shown = charts.drawn(means, styles)
    return Figure(
        id="nll",
        label="Line chart of the negative log-likelihood in bits per dimension against the number "
        f"of steps, one line per method: {', '.join(shown)}.",
        caption=f"The variational bound on the negative log-likelihood of {count} test images in "
        f"bits {'of a density ' if density else ''}per dimension, for DDPM chains of K steps, "
        "± one standard error over the images. Lower is better. All methods see the same images "
        "with the same noise.",
        panes=(_pane("DDPM", means, styles, errors),),
        legend={label: styles[label] for label in shown},
        table=DataTable(
            "nll", ("method", "steps", UNIT, "standard error"), tuple(_rows(shown, means, errors))
        ),
    )


def terms(results: xr.Dataset, styles: MethodStyles) -> Figure:
    values = results["nll_terms"]
    known = [str(term) for term in values["term"].values]
    shown = charts.drawn(values, styles)
    titles = [_TERMS.get(term, term) for term in known]
    rows = ((term, *row) for term in known for row in _rows(shown, values.sel(term=term)))
    return Figure(
        id="nll-terms",
        label=f"Line charts of the terms of the bound ({', '.join(known)}) against the number of "
        f"steps, one line per method: {', '.join(shown)}.",
        caption=f"The terms of the bound, which add up to the figure above: {'; '.join(titles)}. "
        "Each has its own scale. Where methods share a term their lines lie on one another.",
        panes=tuple(_pane(term, values.sel(term=term), styles) for term in known),
        legend={label: styles[label] for label in shown},
        table=DataTable("nll_terms", ("term", "method", "steps", UNIT), tuple(rows)),
    )


def _pane(
    title: str, means: xr.DataArray, styles: MethodStyles, errors: xr.DataArray | None = None
) -> Plot:
    present = means.dropna("steps", how="all")
    x = charts.listed_axis("number of steps K", present["steps"].values.tolist(), log=True)
    figure = charts.chart(x, charts.value_axis(UNIT, present, errors))
    for label in charts.drawn(present, styles):
        values = present.sel({"method": label}).dropna("steps")
        spread = None if errors is None else errors.sel({"method": label, "steps": values["steps"]})
        charts.add_line(figure, label, styles[label], values, spread)
    return Plot(title, charts.plain(figure))


def _rows(shown: Sequence[str], *columns: xr.DataArray) -> Iterator[tuple[Value, ...]]:
    """A row for each method and K of which the first column has a number."""
    chosen = [c.sel({"method": shown}).transpose("method", "steps") for c in columns]
    steps = chosen[0]["steps"].values
    for i, j in np.argwhere(chosen[0].notnull().values):
        yield (shown[i], int(steps[j]), *(float(column.values[i, j]) for column in chosen))
