"""Line charts as Plotly's trees: axes that show the interesting range, and lines with bars.

One method at 726 bits would squeeze all others into a tenth of the height: an axis leaves out what
is far on the bad side, and a point beyond it stands at the edge with its value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, isfinite, log10
from typing import Any

import numpy as np

from ocm_core.report.style import LineStyle, var
from ocm_core.results.replicates import Estimate

Spec = dict[str, Any]
Line = Sequence[tuple[float, Estimate]]  # along nfe, time or guidance
Lines = Mapping[str, Line]  # by label

_MOST_TICKS = 6
_FEW_DECADES = 2
_FAR_APART = 3.0  # nearer values leave a logarithmic axis without ticks
_TICKS_APART = 0.065  # of the width of a logarithmic axis
_MARGIN = 0.06  # of the width of a linear axis
_EQUAL = 1e-6  # values that differ by less, relatively, are a horizontal line
_INSIDE, _ROOM = 0.8, 1.3  # share of all values inside the range, and what is added to it
_SQUEEZED = 2.0  # an axis is cut if that makes the rest so many times larger
_APART = 12  # pixels between two values at an edge
_WIDTH = 0.22  # of a chart: of a value at its edge


def layout(**changes: Any) -> Spec:
    """Return Plotly's layout, quiet: no legend (the page has its own), no box, hairline grid."""
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


def axis(title: str, **changes: Any) -> Spec:
    """Return a linear axis."""
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


def log_axis(title: str, **changes: Any) -> Spec:
    """Return a logarithmic axis."""
    look = {"type": "log", "exponentformat": "power", "dtick": 1, "tickfont": {"size": 11}}
    return axis(title, **look | changes)


def decades(title: str, low: float, high: float) -> Spec:
    """Return a logarithmic axis from `low` to `high`."""
    reach = [log10(low) - 0.15, log10(high) + 0.15]
    ticks: Spec = {"dtick": ceil((reach[1] - reach[0]) / _MOST_TICKS)}
    if reach[1] - reach[0] < _FEW_DECADES:
        ticks = {"dtick": "D2", "tickformat": "~g"}  # 1, 2 and 5 of each decade, in full
    return log_axis(title, range=reach, **ticks)


def listed_axis(title: str, places: Sequence[float], *, log: bool = True) -> Spec:
    """Return an axis with a tick at each place, and its number where there is room."""
    log = log and min(places) > 0 and len(places) > 1
    texts, last = [], 0.0
    room = _TICKS_APART * log10(places[-1] / places[0]) if log else 0.0
    for place in places:
        roomy = not log or last == 0 or log10(place / last) > room
        texts.append(f"{place:g}" if roomy else "")
        last = place if roomy else last
    ticks = {"tickvals": list(places), "ticktext": texts, "dtick": None, "tickangle": 0}
    return log_axis(title, **ticks) if log else axis(title, **ticks, tickfont={"size": 11})


def value_axis(title: str, lines: Lines, *, log: bool = True, higher: bool = False) -> Spec:
    """Return an axis for lines and their bars; logarithmic where values are far apart.

    It leaves out what lies far on the bad side, which `chart` then marks. On a logarithmic axis a
    bar may reach down to zero: only its upper end makes room.
    """
    drawn = _finite(lines)
    log = log and min(e.mean for e in drawn) > 0
    limit = _limit(lines, log=log, higher=higher)
    shown = [e for e in drawn if limit is None or (e.mean >= limit) == higher or e.mean == limit]
    bars = [e.error if e.has_error else 0.0 for e in shown]
    low, high = (
        min(e.mean for e in shown),
        max(e.mean + bar for e, bar in zip(shown, bars, strict=True)),
    )
    if log and high / low > _FAR_APART:
        return decades(title, low, high)
    lowest = min(e.mean - bar for e, bar in zip(shown, bars, strict=True))
    width = high - lowest if high - lowest > _EQUAL * abs(high) else abs(high) or 1.0
    start = lowest - _MARGIN * width
    if low >= 0 > start:  # what cannot be negative needs no more room than for its marker
        start = min(lowest, -_MARGIN * width / 3)
    look = {"exponentformat": "power", "tickfont": {"size": 11}}
    return axis(title, range=[start, high + _MARGIN * width], **look)


def _finite(lines: Lines) -> list[Estimate]:
    return [e for line in lines.values() for _, e in line if e.is_finite]


def _limit(lines: Lines, *, log: bool, higher: bool) -> float | None:
    """Return the end of the interesting range on the bad side; None where nothing is left out.

    Half of the lines are drawn at every place.
    """
    sign = -1.0 if higher else 1.0

    def size(value: float) -> float:
        return float(sign * (np.log(value) if log else value))

    sizes = [size(e.mean) for e in _finite(lines)]
    at: dict[float, list[float]] = {}
    for line in lines.values():
        for x, e in line:
            if e.is_finite:
                at.setdefault(x, []).append(size(e.mean))
    half = max(float(np.median(values)) for values in at.values())
    best, most = min(sizes), float(np.quantile(sizes, _INSIDE))
    end = max(best + _ROOM * (most - best), half)
    if not max(sizes) - best > _SQUEEZED * (end - best) > 0:
        return None
    return float(np.exp(sign * end)) if log else sign * end


def chart(x: Spec, y: Spec, lines: Lines, styles: Mapping[str, LineStyle]) -> Spec:
    """Return a chart of lines with bars; a point beyond the range stands at its edge."""
    ends = [10.0**end for end in y["range"]] if y.get("type") == "log" else y.get("range")
    data = [_trace(label, styles[label], line, ends) for label, line in lines.items()]
    notes: list[Spec] = []
    if ends:
        notes = [*_notes(lines, styles, ends, log_x=x.get("type") == "log", y=y)]
    return {"data": data, "layout": layout(xaxis=x, yaxis=y, annotations=notes)}


def _trace(label: str, style: LineStyle, line: Line, ends: Sequence[float] | None) -> Spec:
    values = [number(e.mean) for _, e in line]
    trace: Spec = {
        "type": "scatter",
        "name": label,
        "meta": label,
        "mode": "lines" if style.marker == "none" else "lines+markers",
        "x": [x for x, _ in line],
        "y": [_clipped(v, ends) for v in values],
        "text": ["" if v is None else f"{v:.3g}" for v in values],
        "hovertemplate": "%{x}: %{text}",
        "line": {"color": style.colour, "dash": style.dash, "width": style.width},
        "marker": {"symbol": style.marker, "size": 5 + style.width, "color": style.colour},
    }
    if style.marker == "none":
        del trace["marker"]
    if any(e.has_error for _, e in line):
        trace["customdata"] = [number(e.error) for _, e in line]
        trace["hovertemplate"] += " ± %{customdata:.1g}"
        trace["error_y"] = _bars([e for _, e in line], style, ends)
    return trace


def _bars(line: Sequence[Estimate], style: LineStyle, ends: Sequence[float] | None) -> Spec:
    """Bars that end where the axis does."""
    low, high = ends or (-np.inf, np.inf)
    sides = [
        (min(e.error, e.mean - low), min(e.error, high - e.mean))
        if e.has_error and low <= e.mean <= high
        else (0.0, 0.0)
        for e in line
    ]
    down, up = ([float(f"{v:.6g}") for v in side] for side in zip(*sides, strict=True))
    look = {"color": style.colour, "thickness": 1, "width": 3}
    return {"array": up, "arrayminus": down, "symmetric": False, **look}


def _notes(
    lines: Lines, styles: Mapping[str, LineStyle], ends: Sequence[float], *, log_x: bool, y: Spec
) -> Iterator[Spec]:
    """The values of points beyond the edges, stacked so that none stands on another."""
    beyond = [
        (x, e.mean, label)
        for label, line in lines.items()
        for x, e in line
        if e.is_finite and not ends[0] <= e.mean <= ends[1]
    ]
    spots = _spots(sorted({x for x, *_ in beyond}), lines, log=log_x)
    stacks: dict[tuple[float, bool], int] = {}
    for x, value, label in sorted(beyond, key=lambda note: (note[0], -note[1])):
        spot = spots[x], value > ends[1]
        high, depth = spot[1], stacks.get(spot, 0)
        stacks[spot] = depth + 1
        yield {
            "text": f"{value:.3g}",
            "name": label,
            "showarrow": False,
            "bgcolor": var("page"),
            "borderpad": 0,
            "font": {"size": 10, "color": styles[label].colour},
            "x": log10(x) if log_x else x,
            "y": y["range"][1 if high else 0],
            "yshift": (-8 - _APART * depth) if high else (8 + _APART * depth),
            "xshift": 14,
        }


def _spots(xs: Sequence[float], lines: Lines, *, log: bool) -> dict[float, float]:
    """Name the first of neighbours that are too near for their values to stand side by side."""
    every = [log10(x) if log else x for points in lines.values() for x, _ in points]
    room = _WIDTH * (max(every) - min(every))
    found: dict[float, float] = {}
    first = None
    for x in xs:
        place = log10(x) if log else x
        if first is None or place - (log10(first) if log else first) > room:
            first = x
        found[x] = first
    return found


def number(value: float) -> float | None:
    """Return six digits, or None where there is no number."""
    return float(f"{value:.6g}") if isfinite(value) else None


def _clipped(value: float | None, ends: Sequence[float] | None) -> float | None:
    return value if value is None or ends is None else min(max(value, ends[0]), ends[1])
