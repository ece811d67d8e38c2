"""Curves of a toy: the error of the covariance along t, and the MMD of samples along K."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import DataTable, Figure, Plot
from ocm_core.report.page.style import REFERENCE, LineStyle, var
from ocm_core.report.statistics.estimates import mean, standard_error
from ocm_core.report.statistics.method_comparison import FIXED_VARIANCES
from ocm_core.text import plural

FLOOR = "a perfect sampler"
_FLOOR_STYLE = LineStyle(REFERENCE, "grey", "none", width=1.0)
_EXACT = 1e-5  # errors below this share of the rest are rounding, and only stretch the axis


def covariance_error(results: xr.Dataset, styles: MethodStyles, points: int) -> Figure:
    errors, spreads = results["covariance_error"], results["covariance_error_se"]
    known = charts.drawn(errors, styles)
    floor = _axis_floor(errors)
    y = charts.decades("squared error", floor, float(errors.max()))
    panes = []
    for score in errors["score"].values:
        figure = charts.chart(charts.log_axis("timestep t"), y)
        for label in known:
            one = {"score": score, "method": label}
            charts.add_band(figure, label, styles[label], errors.sel(one), spreads.sel(one))
            charts.add_line(
                figure, label, styles[label], errors.sel(one), spreads.sel(one), with_bars=False
            )
        panes.append(Plot(f"{score} score", charts.plain(figure)))
    hidden = _below(errors, known, floor)
    return Figure(
        id="covariance-error",
        label="Line charts of the squared error of the reverse covariance against the timestep, "
        f"one line per method: {', '.join(known)}.",
        caption="Mean squared error of the diagonal of Σ(xₜ), the covariance of the step t → t-1, "
        f"against the closed form, over {points} points xₜ ~ q(xₜ) at each t. Bands: ± one "
        f"standard error over the points.{hidden} exact_full is judged by its diagonal.",
        panes=tuple(panes),
        legend={label: styles[label] for label in known},
        table=_table("covariance_error", "t", errors, spreads, known),
    )


def mmd(results: xr.Dataset, styles: MethodStyles, sampler: str, count: int) -> Figure:
    values = results["mmd"].sel(sampler=sampler)
    means, spreads = mean(values), standard_error(values)
    known = charts.drawn(means, styles)
    lowest = min(float(means.min()), float(results["mmd_floor"].mean()))
    steps = means["steps"].values.tolist()
    x = charts.listed_axis("network evaluations K", steps, log=True)
    y = charts.decades("MMD", lowest, float(means.max()))
    panes = []
    for score in means["score"].values:
        figure = charts.chart(x, y)
        _add_floor(figure, results["mmd_floor"], steps)
        for label in known:
            one = {"score": score, "method": label}
            charts.add_line(figure, label, styles[label], means.sel(one), spreads.sel(one))
        panes.append(Plot(f"{score} score", charts.bounded(figure)))
    seeds = values.sizes["seed"]
    return Figure(
        id=f"mmd-{sampler}",
        label=f"Line charts of the MMD of {sampler.upper()} samples against the number of steps, "
        f"one line per method: {', '.join(known)}.",
        caption=f"{sampler.upper()}: MMD between {count} samples and the test set, mean over "
        f"{plural(seeds, 'seed')}{' ± one standard error' if seeds > 1 else ''}. The grey band is "
        f"the same for {count} fresh points of the true distribution: where a perfect sampler "
        "would be.",
        panes=tuple(panes),
        legend={label: styles[label] for label in known} | {FLOOR: _FLOOR_STYLE},
        table=_table(f"mmd_{sampler}", "steps", means, spreads, known),
    )


def frontier(results: xr.Dataset, styles: MethodStyles, score: str, ocm: str) -> Figure:
    """MMD against evaluations by sampler: what is best somewhere, OCM, and the fixed variances."""
    values = results["mmd"].sel(score=score)
    means, spreads = mean(values), standard_error(values)
    labels = _leading(means, styles, ocm)
    steps = means["steps"].values.tolist()
    x = charts.listed_axis("network evaluations", steps, log=True)
    lowest = min(float(means.min()), float(results["mmd_floor"].mean()))
    y = charts.decades("MMD", lowest, float(means.max()))
    panes = []
    for sampler in means["sampler"].values.tolist():
        figure = charts.chart(x, y)
        _add_floor(figure, results["mmd_floor"], steps)
        for label in [m for m in labels if m in charts.drawn(means.sel(sampler=sampler), styles)]:
            one = {"sampler": sampler, "method": label}
            charts.add_line(figure, label, styles[label], means.sel(one), spreads.sel(one))
        panes.append(Plot(sampler.upper(), charts.bounded(figure)))
    rows = [
        (str(sampler), label, int(k), float(means.sel(at)), float(spreads.sel(at)))
        for sampler in means["sampler"].values
        for label in labels
        for k in steps
        for at in [{"sampler": sampler, "method": label, "steps": k}]
        if np.isfinite(means.sel(at))
    ]
    columns = ("sampler", "method", "evaluations", "MMD", "standard error")
    return Figure(
        id="frontier",
        label=f"Line charts of MMD against network evaluations: {', '.join(labels)}.",
        caption=f"MMD with the {score} score (lower is better): every method that is best "
        "somewhere, and those that the paper compares. The grey band is a perfect sampler's.",
        panes=tuple(panes),
        legend={label: styles[label] for label in labels} | {FLOOR: _FLOOR_STYLE},
        table=DataTable("frontier", columns, tuple(rows)),
    )


def _leading(means: xr.DataArray, styles: MethodStyles, ocm: str) -> list[str]:
    best = means.where(means.notnull().any("method"), drop=True).fillna(np.inf).idxmin("method")
    known = {*map(str, best.values.ravel()), ocm, *FIXED_VARIANCES}
    return [label for label in charts.drawn(means, styles) if label in known]


def _add_floor(figure: go.Figure, floor: xr.DataArray, steps: list[int]) -> None:
    level = float(floor.mean())
    error = float(standard_error(floor))
    reach = error if np.isfinite(error) else 0.0
    ends = [steps[0] * 0.8, steps[-1] * 1.25]
    common = {"meta": FLOOR, "mode": "lines", "hoverinfo": "skip"}
    line = {"color": var("grey"), "width": 1}
    band = [level - reach, level - reach, level + reach, level + reach]
    figure.add_scatter(
        x=ends + ends[::-1],
        y=band,
        fill="toself",
        fillcolor=var("grey-band"),
        line={"width": 0},
        **common,
    )
    figure.add_scatter(x=ends, y=[level, level], line=line, **common)


def _axis_floor(values: xr.DataArray) -> float:
    """Where the axis starts: below every curve that is not merely rounding."""
    medians = values.median("t")
    real = values.where(medians > _EXACT * medians.max())
    return float(real.where(real > 0).min())


def _below(errors: xr.DataArray, known: Iterable[str], floor: float) -> str:
    """Which curves lie below the axis, in words."""
    said = ""
    for score in errors["score"].values:
        highest = errors.sel(score=score).max("t")
        found = [label for label in known if float(highest.sel({"method": label})) < floor]
        if found:
            said += f" Exact but for rounding, and below the axis, with the {score} score: "
            said += f"{', '.join(found)}."
    return said


def _table(
    name: str, axis: str, values: xr.DataArray, spreads: xr.DataArray, known: Iterable[str]
) -> DataTable:
    rows = [
        (str(score), label, int(x), float(values.sel(at)), float(spreads.sel(at)))
        for score in values["score"].values
        for label in known
        for x in values[axis].values
        for at in [{"score": score, "method": label, axis: x}]
    ]
    return DataTable(name, ("score", "method", axis, "mean", "standard error"), tuple(rows))
