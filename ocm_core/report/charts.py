"""Line charts as Plotly's trees: axes that show the interesting range, and lines with bars.

One method at 726 bits would squeeze all others into a tenth of the height: an axis leaves out what
is far on the bad side, and a point beyond it stands at the edge with its value.
"""

from __future__ import annotations

from collections import Counter
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


def axis(title: str, **changes: Any) -> Spec:
    """Return a linear axis; the page's script says how all axes look."""
    return {"title": {"text": title}, **changes}


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
    drawn = {label: [(x, e) for x, e in line if e.is_finite] for label, line in lines.items()}
    shown = [e for line in drawn.values() for _, e in line]
    log = log and min(e.mean for e in shown) > 0
    limit = _limit(drawn, log=log, higher=higher)
    if limit is not None:
        shown = [e for e in shown if (e.mean >= limit) == higher or e.mean == limit]
    bars = [(e.mean, e.error if e.has_error else 0.0) for e in shown]
    low, high = min(mean for mean, _ in bars), max(mean + bar for mean, bar in bars)
    if log and high / low > _FAR_APART:
        return decades(title, low, high)
    lowest = min(mean - bar for mean, bar in bars)
    width = high - lowest if high - lowest > _EQUAL * abs(high) else abs(high) or 1.0
    start = lowest - _MARGIN * width
    if low >= 0 > start:  # what cannot be negative needs no more room than for its marker
        start = min(lowest, -_MARGIN * width / 3)
    look = {"exponentformat": "power", "tickfont": {"size": 11}}
    return axis(title, range=[start, high + _MARGIN * width], **look)


def _limit(lines: Lines, *, log: bool, higher: bool) -> float | None:
    """Return the end of the interesting range on the bad side; None where nothing is left out.

    Half of the lines are drawn at every place.
    """
    sign = -1.0 if higher else 1.0
    at: dict[float, list[float]] = {}
    for line in lines.values():
        for x, e in line:
            at.setdefault(x, []).append(float(sign * (np.log(e.mean) if log else e.mean)))
    sizes = [size for values in at.values() for size in values]
    half = max(float(np.median(values)) for values in at.values())
    best, most = min(sizes), float(np.quantile(sizes, _INSIDE))
    end = max(best + _ROOM * (most - best), half)
    if not max(sizes) - best > _SQUEEZED * (end - best) > 0:
        return None
    return float(np.exp(sign * end)) if log else sign * end


def chart(x: Spec, y: Spec, lines: Lines, styles: Mapping[str, LineStyle]) -> Spec:
    """Return a chart of lines with bars; a point beyond the range stands at its edge."""
    low, high = (10.0**end for end in y["range"]) if y.get("type") == "log" else y["range"]
    data = [_trace(label, styles[label], line, low, high) for label, line in lines.items()]
    beyond = [
        (log10(x_value) if x.get("type") == "log" else x_value, e.mean, label)
        for label, line in lines.items()
        for x_value, e in line
        if e.is_finite and not low <= e.mean <= high
    ]
    notes = []
    for place, depth, value, label in _stacked(beyond, high, lines, log=x.get("type") == "log"):
        above = value > high
        note = {
            "text": f"{value:.3g}",
            "name": label,
            "showarrow": False,
            "bgcolor": var("page"),
            "borderpad": 0,
            "font": {"size": 10, "color": styles[label].colour},
            "x": place,
            "y": y["range"][1 if above else 0],
            "yshift": (-8 - _APART * depth) if above else (8 + _APART * depth),
            "xshift": 14,
        }
        notes.append(note)
    return {"data": data, "layout": {"xaxis": x, "yaxis": y, "annotations": notes}}


def _trace(label: str, style: LineStyle, line: Line, low: float, high: float) -> Spec:
    values = [number(e.mean) for _, e in line]
    trace: Spec = {
        "type": "scatter",
        "name": label,
        "meta": label,
        "mode": "lines" if style.marker == "none" else "lines+markers",
        "x": [x for x, _ in line],
        "y": [None if v is None else min(max(v, low), high) for v in values],
        "text": ["" if v is None else f"{v:.3g}" for v in values],
        "hovertemplate": "%{x}: %{text}",
        "line": {"color": style.colour, "dash": style.dash, "width": style.width},
    }
    if style.marker != "none":
        size = 5 + style.width
        trace["marker"] = {"symbol": style.marker, "size": size, "color": style.colour}
    if any(e.has_error for _, e in line):
        trace["customdata"] = [number(e.error) for _, e in line]
        trace["hovertemplate"] += " ± %{customdata:.1g}"
        sides = [  # bars end where the axis does
            (min(e.error, e.mean - low), min(e.error, high - e.mean))
            if e.has_error and low <= e.mean <= high
            else (0.0, 0.0)
            for _, e in line
        ]
        down, up = ([float(f"{v:.6g}") for v in side] for side in zip(*sides, strict=True))
        look = {"color": style.colour, "thickness": 1, "width": 3}
        trace["error_y"] = {"array": up, "arrayminus": down, "symmetric": False, **look}
    return trace


def _stacked(
    beyond: Sequence[tuple[float, float, str]], high: float, lines: Lines, *, log: bool
) -> Iterator[tuple[float, int, float, str]]:
    """Yield place, depth, value and label of points beyond the edges; none stands on another.

    Neighbours that are too near for their values to stand side by side share a stack.
    """
    every = [log10(x) if log else x for points in lines.values() for x, _ in points]
    room = _WIDTH * (max(every) - min(every))
    first = None
    stacks: Counter[tuple[float, bool]] = Counter()
    for place, value, label in sorted(beyond, key=lambda note: (note[0], -note[1])):
        first = place if first is None or place - first > room else first
        yield place, stacks[first, value > high], value, label
        stacks[first, value > high] += 1


def number(value: float) -> float | None:
    """Return six digits, or None where there is no number."""
    return float(f"{value:.6g}") if isfinite(value) else None
