"""The bound on the likelihood against the number of steps, whole and term by term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import DataTable, Figure, Plot, Value

UNIT = "bits/dim"
_COLUMNS = {
    "nll": UNIT,
    "nll_se": "standard error",
    "nll_difference": "less the first chain",
    "nll_difference_se": "its standard error",
}
_TERMS = {
    "prior": "prior: how far q(x_t | x₀) is from pure noise where the chain ends",
    "steps": "steps: the KL divergences of all reverse steps",
    "decoder": "decoder: the last step, onto the data",
}
_UNSEEN = 0.01  # of the range of the term that varies most


def bound(results: xr.Dataset, styles: MethodStyles, items: str, *, density: bool) -> Figure:
    """Of every chain, on so many `items`. `density`: they are continuous, without grey levels."""
    means, errors = results["nll"], results["nll_se"]
    shown = charts.drawn(means, styles)
    names = [str(name) for name in means["chain"].values]
    columns = [results[name] for name in _COLUMNS]
    rows = (
        (name, *row)
        for name in names
        for row in _rows(shown, *(column.sel(chain=name) for column in columns))
    )
    return Figure(
        id="nll",
        label="Line charts of the negative log-likelihood in bits per dimension against the number "
        f"of steps, one line per method: {', '.join(shown)}; a chart for each of the chains "
        f"{', '.join(names)}.",
        caption=f"The variational bound on the negative log-likelihood of {items} in "
        f"bits {'of a density ' if density else ''}per dimension, for DDPM chains of K steps, "
        "± one standard error over these. Lower is better; a number at the edge is the value of a "
        "point beyond it. All methods and chains see the same ones with the same noise. "
        f"{in_pairs(results)}".strip(),
        panes=tuple(
            _pane(name.upper(), means.sel(chain=name), styles, errors.sel(chain=name))
            for name in names
        ),
        legend={label: styles[label] for label in shown},
        table=DataTable("nll", ("chain", "method", "steps", *_COLUMNS.values()), tuple(rows)),
    )


def in_pairs(results: xr.Dataset) -> str:
    """In how many cells each chain but the first is lower than it, item by item."""
    first, *others = (str(name) for name in results["chain"].values)
    said = []
    for name in others:
        one = results.sel(chain=name)
        gaps, noise = one["nll_difference"], one["nll_difference_se"]
        count, above = int(gaps.notnull().sum()), int((gaps > noise).sum())
        within = int((gaps > 0).sum()) - above
        said.append(
            f"{name.upper()} beside {first.upper()}, in pairs: of {count} bounds "
            f"{count - above - within} are lower, {within} higher by less than a standard error of "
            f"the difference, {above} by more."
        )
    return " ".join(said)


def terms(results: xr.Dataset, styles: MethodStyles) -> Figure | None:
    """Those that differ between methods or K: what is constant is a sentence. None if all are."""
    values = results["nll_terms"]
    known = [str(term) for term in values["term"].values]
    drawn = [term for term in known if not _is_constant(values, term)]
    if not drawn:
        return None
    shown = charts.drawn(values, styles)
    titles = [_TERMS.get(term, term) for term in drawn]
    rows = ((term, *row) for term in known for row in _rows(shown, values.sel(term=term)))
    return Figure(
        id="nll-terms",
        label=f"Line charts of the terms of the bound ({', '.join(drawn)}) against the number of "
        f"steps, one line per method: {', '.join(shown)}.",
        caption="The terms of the bound on the first chain, which add up to the figure above: "
        f"{'; '.join(titles)}.{_constants(values, [term for term in known if term not in drawn])}"
        + " Each has its own scale. Where methods share a term their lines lie on one another."
        * (len(drawn) > 1),
        panes=tuple(_pane(term, values.sel(term=term), styles) for term in drawn),
        legend={label: styles[label] for label in shown},
        table=DataTable("nll_terms", ("term", "method", "steps", UNIT), tuple(rows)),
    )


def _is_constant(values: xr.DataArray, term: str) -> bool:
    """Whether it differs, between methods and K, by less than one could see beside the others."""
    reach = values.max(("method", "steps")) - values.min(("method", "steps"))
    return bool(reach.sel(term=term) < _UNSEEN * reach.max())


def _constants(values: xr.DataArray, terms: Sequence[str]) -> str:
    said = ""
    for term in terms:
        one = values.sel(term=term)
        low, high = (f"{float(end):.3g}" for end in (one.min(), one.max()))
        between = low if low == high else f"{low} to {high}"
        said += f" The {term} term ({_TERMS.get(term, term).partition(': ')[2]}) is {between} "
        said += f"{UNIT} whatever the method and K."
    return said


def _pane(
    title: str, means: xr.DataArray, styles: MethodStyles, errors: xr.DataArray | None = None
) -> Plot:
    present = means.dropna("steps", how="all")
    x = charts.listed_axis("network evaluations K", present["steps"].values.tolist(), log=True)
    figure = charts.chart(x, charts.value_axis(UNIT, present, errors))
    for label in charts.drawn(present, styles):
        values = present.sel({"method": label}).dropna("steps")
        spread = None if errors is None else errors.sel({"method": label, "steps": values["steps"]})
        charts.add_line(figure, label, styles[label], values, spread)
    return Plot(title, charts.bounded(figure))


def _rows(shown: Sequence[str], *columns: xr.DataArray) -> Iterator[tuple[Value, ...]]:
    """A row for each method and K of which the first column has a number."""
    chosen = [c.sel({"method": shown}).transpose("method", "steps") for c in columns]
    steps = chosen[0]["steps"].values
    for i, j in np.argwhere(chosen[0].notnull().values):
        yield (shown[i], int(steps[j]), *(float(column.values[i, j]) for column in chosen))
