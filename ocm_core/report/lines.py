"""Line charts with one line per method: covariance error against t, and MMD against K."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import ceil, log10
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from ocm_core.report.page import Figure, Plot, Table
from ocm_core.report.stats import standard_error
from ocm_core.report.style import REFERENCE, LineStyle, layout, log_axis, var

Styles = Mapping[str, LineStyle]

FLOOR = "a perfect sampler"
_FLOOR_STYLE = LineStyle(REFERENCE, "grey", "none", width=1.0)
_MOST_TICKS = 6
_FEW_DECADES = 2
_EXACT = 1e-5  # errors below this share of the rest are rounding, and only stretch the axis


def covariance_error(results: xr.Dataset, styles: Styles, points: int) -> Figure:
    errors, spreads = results["covariance_error"], results["covariance_error_se"]
    known = [label for label in styles if _has_values(errors, label)]
    floor = _axis_floor(errors)
    panes = []
    for score in errors["score"].values:
        figure = go.Figure(layout=_chart("timestep t", "squared error", _log_range(errors, floor)))
        for label in known:
            one = {"score": score, "method": label}
            _add_band(figure, label, styles[label], errors.sel(one), spreads.sel(one))
            _add_line(figure, label, styles[label], errors.sel(one), spreads.sel(one))
        panes.append(Plot(f"{score} score", plain(figure)))
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


def mmd(results: xr.Dataset, styles: Styles, sampler: str, count: int) -> Figure:
    values = results["mmd"].sel(sampler=sampler)
    means, spreads = values.mean("seed", skipna=False), standard_error(values)
    known = [label for label in styles if _has_values(means, label)]
    lowest = min(float(means.min()), float(results["mmd_floor"].mean()))
    panes = []
    for score in means["score"].values:
        figure = go.Figure(layout=_chart("steps K", "MMD", _log_range(means, lowest)))
        steps = means["steps"].values.tolist()
        figure.update_xaxes(tickvals=steps, ticktext=[str(k) for k in steps], dtick=None)
        _add_floor(figure, results["mmd_floor"], steps)
        for label in known:
            one = {"score": score, "method": label}
            error = _bars(spreads.sel(one), styles[label])
            _add_line(figure, label, styles[label], means.sel(one), spreads.sel(one), error_y=error)
        panes.append(Plot(f"{score} score", plain(figure)))
    seeds = values.sizes["seed"]
    return Figure(
        id=f"mmd-{sampler}",
        label=f"Line charts of the MMD of {sampler.upper()} samples against the number of steps, "
        f"one line per method: {', '.join(known)}.",
        caption=f"{sampler.upper()}: MMD between {count} samples and the test set, mean over "
        f"{_plural(seeds, 'seed')}{' ± one standard error' if seeds > 1 else ''}. The grey band is "
        f"the same for {count} fresh points of the true distribution: where a perfect sampler "
        "would be.",
        panes=tuple(panes),
        legend={label: styles[label] for label in known} | {FLOOR: _FLOOR_STYLE},
        table=_table(f"mmd_{sampler}", "steps", means, spreads, known),
    )


def plain(figure: go.Figure) -> dict[str, Any]:
    """The figure as Plotly's JSON tree."""
    tree: dict[str, Any] = json.loads(figure.to_json())
    return tree


def _chart(x: str, y: str, y_range: list[float]) -> dict[str, Any]:
    decades = y_range[1] - y_range[0]
    ticks: dict[str, Any] = {"dtick": ceil(decades / _MOST_TICKS)}
    if decades < _FEW_DECADES:
        ticks = {"dtick": "D2", "tickformat": "~g"}  # 1, 2 and 5 of each decade, in full
    return layout(xaxis=log_axis(x), yaxis=log_axis(y, range=y_range, **ticks))


def _add_line(
    figure: go.Figure,
    label: str,
    style: LineStyle,
    values: xr.DataArray,
    spread: xr.DataArray,
    **more: Any,
) -> None:
    figure.add_scatter(
        x=values[values.dims[0]].values.tolist(),
        y=_numbers(values),
        customdata=_numbers(spread),
        name=label,
        meta=label,
        mode="lines+markers",
        line={"color": style.colour, "dash": style.dash, "width": style.width},
        marker={"symbol": style.marker, "size": 5 + style.width, "color": style.colour},
        hovertemplate="%{x}: %{y:.3g} ± %{customdata:.1g}",
        **more,
    )


def _add_band(
    figure: go.Figure, label: str, style: LineStyle, values: xr.DataArray, spread: xr.DataArray
) -> None:
    x = values[values.dims[0]].values.tolist()
    low = (values - spread).clip(min=values / 10)  # a bar may reach zero, a logarithm may not
    high = values + spread
    figure.add_scatter(
        x=x + x[::-1],
        y=_numbers(low) + _numbers(high)[::-1],
        meta=label,
        fill="toself",
        fillcolor=style.band,
        mode="lines",
        line={"width": 0},
        hoverinfo="skip",
    )


def _add_floor(figure: go.Figure, floor: xr.DataArray, steps: list[int]) -> None:
    mean = float(floor.mean())
    error = float(standard_error(floor))
    reach = error if np.isfinite(error) else 0.0
    ends = [steps[0] * 0.8, steps[-1] * 1.25]
    common = {"meta": FLOOR, "mode": "lines", "hoverinfo": "skip"}
    line = {"color": var("grey"), "width": 1}
    band = [mean - reach, mean - reach, mean + reach, mean + reach]
    figure.add_scatter(
        x=ends + ends[::-1],
        y=band,
        fill="toself",
        fillcolor=var("grey-band"),
        line={"width": 0},
        **common,
    )
    figure.add_scatter(x=ends, y=[mean, mean], line=line, **common)


def _bars(spread: xr.DataArray, style: LineStyle) -> dict[str, Any]:
    return {"array": _numbers(spread), "color": style.colour, "thickness": 1, "width": 3}


def _axis_floor(values: xr.DataArray) -> float:
    """Where the axis starts: below every curve that is not merely rounding."""
    medians = values.median("t")
    real = values.where(medians > _EXACT * medians.max())
    return float(real.where(real > 0).min())


def _log_range(values: xr.DataArray, lowest: float) -> list[float]:
    return [log10(lowest) - 0.15, log10(float(values.max())) + 0.15]


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
) -> Table:
    rows = [
        (
            str(score),
            label,
            int(x),
            *_pair(values, spreads, {"score": score, "method": label, axis: x}),
        )
        for score in values["score"].values
        for label in known
        for x in values[axis].values
    ]
    return Table(name, ("score", "method", axis, "mean", "standard error"), tuple(rows))


def _pair(
    values: xr.DataArray, spreads: xr.DataArray, at: Mapping[str, Any]
) -> tuple[float | None, float | None]:
    mean, spread = float(values.sel(at)), float(spreads.sel(at))
    return (mean if np.isfinite(mean) else None, spread if np.isfinite(spread) else None)


def _numbers(values: xr.DataArray) -> list[float | None]:
    """Six digits, and a gap where there is no number."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values.values.tolist()]


def _has_values(values: xr.DataArray, label: str) -> bool:
    return label in values["method"] and bool(values.sel({"method": label}).notnull().any())


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
