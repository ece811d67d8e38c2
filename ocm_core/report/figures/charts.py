"""What charts share: Plotly's layout, axes, and one line, band or path per method."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import ceil, isfinite, log10
from typing import Any

import plotly.graph_objects as go
import xarray as xr

from ocm_core.report.figures.axis_limits import interesting, keep_inside
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.style import LineStyle, var
from ocm_core.report.statistics.selections import methods_with_values

_MOST_TICKS = 6
_FEW_DECADES = 2
_FAR_APART = 3.0  # nearer values leave a logarithmic axis without ticks
_TICKS_APART = 0.065  # of the width of a logarithmic axis
_MARGIN = 0.06  # of the width of a linear axis
_EQUAL = 1e-6  # values that differ by less, relatively, are a horizontal line


def layout(**changes: Any) -> dict[str, Any]:
    """Plotly's layout, quiet: no legend (the page has its own), no box, hairline grid."""
    base = {
        "template": {},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": var("soft")},
        "hoverlabel": {
            "bgcolor": var("panel"),
            "bordercolor": var("rule"),
            "font": {"color": var("ink")},
        },
        "margin": {"l": 58, "r": 12, "t": 10, "b": 46},
        "showlegend": False,
    }
    return base | changes


def axis(title: str, **changes: Any) -> dict[str, Any]:
    base = {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "gridcolor": var("rule"),
        "linecolor": var("rule"),
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": var("rule"),
        "automargin": True,
    }
    return base | changes


def log_axis(title: str, **changes: Any) -> dict[str, Any]:
    look = {"type": "log", "exponentformat": "power", "dtick": 1, "tickfont": {"size": 11}}
    return axis(title, **look | changes)


def plain(figure: go.Figure) -> dict[str, Any]:
    """The figure as Plotly's JSON tree."""
    tree: dict[str, Any] = json.loads(figure.to_json())
    return tree


def bounded(figure: go.Figure) -> dict[str, Any]:
    """The same, with what is outside the range of an axis at its edge."""
    tree = plain(figure)
    keep_inside(tree)
    return tree


def chart(x: Mapping[str, Any], y: Mapping[str, Any]) -> go.Figure:
    return go.Figure(layout=layout(xaxis=x, yaxis=y))


def value_axis(
    title: str,
    values: xr.DataArray,
    errors: xr.DataArray | None = None,
    *,
    log: bool = True,
    higher: bool = False,
) -> dict[str, Any]:
    """An axis for these values and their bars; logarithmic where they are positive and far apart.

    It leaves out what lies far on the bad side, which `bounded` then marks. On a logarithmic axis
    a bar may reach down to zero: only its upper end makes room.
    """
    log = log and float(values.min()) > 0
    values = interesting(values, log=log, higher=higher)
    bars = xr.zeros_like(values) if errors is None else errors.fillna(0.0)
    low, high = float(values.min()), float((values + bars).max())
    if log and high / low > _FAR_APART:
        return decades(title, low, high)
    lowest = float((values - bars).min())
    width = high - lowest if high - lowest > _EQUAL * abs(high) else abs(high) or 1.0
    start = lowest - _MARGIN * width
    if low >= 0 > start:  # what cannot be negative needs no more room than for its marker
        start = min(lowest, -_MARGIN * width / 3)
    look = {"exponentformat": "power", "tickfont": {"size": 11}}
    return axis(title, range=[start, high + _MARGIN * width], **look)


def decades(title: str, low: float, high: float) -> dict[str, Any]:
    reach = [log10(low) - 0.15, log10(high) + 0.15]
    ticks: dict[str, Any] = {"dtick": ceil((reach[1] - reach[0]) / _MOST_TICKS)}
    if reach[1] - reach[0] < _FEW_DECADES:
        ticks = {"dtick": "D2", "tickformat": "~g"}  # 1, 2 and 5 of each decade, in full
    return log_axis(title, range=reach, **ticks)


def listed_axis(title: str, places: Sequence[float], *, log: bool) -> dict[str, Any]:
    """A tick at each place, with its number where there is room."""
    texts, last = [], 0.0
    room = _TICKS_APART * log10(places[-1] / places[0]) if log else 0.0
    for place in places:
        roomy = not log or last == 0 or log10(place / last) > room
        texts.append(f"{place:g}" if roomy else "")
        last = place if roomy else last
    ticks = {"tickvals": list(places), "ticktext": texts, "dtick": None, "tickangle": 0}
    return log_axis(title, **ticks) if log else axis(title, **ticks, tickfont={"size": 11})


def add_line(
    figure: go.Figure,
    label: str,
    style: LineStyle,
    values: xr.DataArray,
    spread: xr.DataArray | None = None,
    *,
    with_bars: bool = True,
) -> None:
    """A method's values along their only dimension, with what is known of their spread."""
    more: dict[str, Any] = {"hovertemplate": "%{x}: %{y:.3g}"}
    if spread is not None and bool(spread.notnull().any()):
        more = {
            "customdata": numbers(spread),
            "hovertemplate": "%{x}: %{y:.3g} ± %{customdata:.1g}",
        }
        more |= {"error_y": bars(spread, style)} if with_bars else {}
    x = values[values.dims[0]].values.tolist()
    figure.add_scatter(x=x, y=numbers(values), **_look(label, style), **more)


def add_path(
    figure: go.Figure, label: str, style: LineStyle, path: xr.Dataset, texts: list[str]
) -> None:
    """A method's way through a plane, along the number of steps."""
    figure.add_scatter(
        x=numbers(path["x"]),
        y=numbers(path["y"]),
        error_x=bars(path["x_error"], style),
        error_y=bars(path["y_error"], style),
        text=texts,
        textposition="top right",
        textfont={"size": 10, "color": style.colour},
        customdata=[f"K = {k}" for k in path["steps"].values],
        hovertemplate="%{customdata}: %{x:.3g}, %{y:.3g}",
        **_look(label, style, mode="lines+markers+text"),
    )


def _look(label: str, style: LineStyle, mode: str = "lines+markers") -> dict[str, Any]:
    return {
        "name": label,
        "meta": label,
        "mode": mode,
        "line": {"color": style.colour, "dash": style.dash, "width": style.width},
        "marker": {"symbol": style.marker, "size": 5 + style.width, "color": style.colour},
    }


def add_band(
    figure: go.Figure, label: str, style: LineStyle, values: xr.DataArray, spread: xr.DataArray
) -> None:
    x = values[values.dims[0]].values.tolist()
    low = (values - spread).clip(min=values / 10)  # a bar may reach zero, a logarithm may not
    high = values + spread
    figure.add_scatter(
        x=x + x[::-1],
        y=numbers(low) + numbers(high)[::-1],
        meta=label,
        fill="toself",
        fillcolor=style.band,
        mode="lines",
        line={"width": 0},
        hoverinfo="skip",
    )


def bars(spread: xr.DataArray, style: LineStyle) -> dict[str, Any]:
    return {"array": numbers(spread), "color": style.colour, "thickness": 1, "width": 3}


def numbers(values: xr.DataArray) -> list[float | None]:
    """Six digits, and a gap where there is no number."""
    return [float(f"{v:.6g}") if isfinite(v) else None for v in values.values.tolist()]


def drawn(values: xr.DataArray, styles: MethodStyles) -> list[str]:
    """The methods that have values, in the order of the styles."""
    known = methods_with_values(values)
    return [label for label in styles if label in known]
