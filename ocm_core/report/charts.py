"""Line charts as Plotly's trees: colours and styles of lines, axes, lines with bars.

Colours are written into figures as `var(--name)`, for the palette of the reader's colour scheme.
The hues are near Okabe and Ito's; colour-blind readers tell them apart on both backgrounds
(tests/report/test_charts.py), and markers and dashes differ too. An axis leaves out what is far on
the bad side: one method at 726 bits would squeeze all others into a tenth of the height.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil, isfinite, log10
from typing import Any, NamedTuple

import numpy as np

from ocm_core.results.replicates import Estimate
from ocm_core.results.study import Method

Spec = dict[str, Any]
Line = Sequence[tuple[float, Estimate]]  # along nfe, time or guidance
Lines = Mapping[str, Line]  # by label

_MOST_TICKS, _FEW_DECADES = 6, 2
_FAR_APART = 3.0  # nearer values leave a logarithmic axis without ticks
_TICKS_APART = 0.065  # of the width of a logarithmic axis
_MARGIN = 0.06  # of the width of a linear axis
_EQUAL = 1e-6  # values that differ by less, relatively, are a horizontal line
_INSIDE, _ROOM = 0.8, 1.3  # share of all values inside the range, and what is added to it
_SQUEEZED = 2.0  # an axis is cut if that makes the rest so many times larger
_APART = 12  # pixels between two values at an edge
_WIDTH = 0.22  # of a chart: of a value at its edge
_PALETTE = {  # on light and on dark screens
    "page": ("#ffffff", "#14181c"),
    "panel": ("#f6f7f8", "#1c2227"),
    "ink": ("#1c2126", "#e6e9ec"),
    "soft": ("#5a646e", "#a3adb7"),
    "rule": ("#dfe3e7", "#333c45"),
    "accent": ("#0b63a5", "#7cc0f2"),
    "good": ("#00724f", "#4fc9a0"),
    "bad": ("#b0400a", "#ff9a5c"),
    "vermillion": ("#b94c00", "#f1761d"),
    "blue": ("#0b6fb0", "#4baaeb"),
    "green": ("#09a071", "#32c397"),
    "purple": ("#a2426e", "#e792c8"),
    "orange": ("#ca8703", "#ffc038"),
    "sky": ("#3d9cd0", "#95d6ff"),
    "grey": ("#8993a2", "#7a8891"),
}
LIGHT, DARK = ({name: pair[i] for name, pair in _PALETTE.items()} for i in (0, 1))
PALETTES = {"light": LIGHT, "dark": DARK}
SCALE = (  # Viridis, from dark to light, safe for colour-blind readers
    *("#440154", "#482878", "#3e4989", "#31688e", "#26828e"),
    *("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"),
)


def var(name: str) -> str:
    """Return a named colour, as CSS writes it."""
    return f"var(--{name})"


class LineStyle(NamedTuple):
    """The line of a method in every chart: its group in the legend, colour, marker and dash."""

    group: str
    hue: str
    marker: str
    dash: str = "solid"
    width: float = 1.8

    @property
    def colour(self) -> str:
        return var(self.hue)


RELATIVE, REFERENCE = "Learned, relative to a baseline", "Reference"
THIS_WORK, SOLVERS = "This work", "Solvers of diffusers"
GROUPS = (  # in the order of the legend
    *("Learned", RELATIVE, "Exact Jacobian", "Probed while sampling", "Fixed"),
    *(REFERENCE, THIS_WORK, SOLVERS),
)
_FURTHER = (
    *(("dot", "cross"), ("dash", "x"), ("solid", "star")),
    *(("dashdot", "diamond-open"), ("longdash", "square-open")),
)
_DASH, _THIN = "longdash", 1.8
_OURS = (
    *(("vermillion", "circle", "solid", 3.0), ("blue", "square", "solid", 2.4)),
    *(("green", "diamond", "solid", 2.4), ("purple", "triangle-up", "dash", 1.8)),
    *(("orange", "triangle-down", "dashdot", 1.8), ("sky", "star", "longdash", 1.8)),
    *(("ink", "x", "dot", 1.8), ("ink", "square-open", "dash", 1.8)),
    *(("vermillion", "diamond-open", "dot", 1.8), ("blue", "circle-open", "dashdot", 1.8)),
)
_ROUTES = tuple(LineStyle(THIS_WORK, *look) for look in _OURS)
_THEIRS = (
    *(("x", "solid"), ("cross", "dash"), ("diamond-open", "dot")),
    *((marker, dash) for dash, marker in _FURTHER[3:]),
)
_SOLVERS = tuple(LineStyle(SOLVERS, "grey", *look) for look in _THEIRS)


def route_styles(labels: Collection[str], solvers: Collection[str]) -> dict[str, LineStyle]:
    """Return lines for ways to sample: this work in colours first, then solvers in grey."""
    found: dict[str, LineStyle] = {}
    for side, styles in ((False, _ROUTES), (True, _SOLVERS)):
        here = [label for label in labels if (label in solvers) == side]
        found |= {label: styles[i % len(styles)] for i, label in enumerate(here)}
    return found


def method_styles(methods: Mapping[str, Method]) -> dict[str, LineStyle]:
    """Return the line of each method label; labels of one kind share its hue and no dash.

    One that stands for its kind (`ocm`, `ocm_relative`, or the only one of it) has the kind's
    marker, open if it is relative; the others are variants.
    """
    own = {}
    for label, method in methods.items():
        group, look = method.known.profile.group, method.known.profile.line
        own[label] = LineStyle(group, *look)
        if method.is_relative:  # thinner beside one of the papers' form
            beside = any(m.kind == method.kind and not m.is_relative for m in methods.values())
            width = min(look.width, _THIN) if beside else look.width
            own[label] = LineStyle(RELATIVE, look.hue, f"{look.marker}-open", _DASH, width)
    forms = Counter((m.kind, m.is_relative) for m in methods.values())
    main = {
        label
        for label, m in methods.items()
        if forms[m.kind, m.is_relative] == 1 or label in (m.kind, f"{m.kind}_relative")
    }
    seen: Counter[str] = Counter()
    for label, method in methods.items():
        if label not in main:
            taken = {own[other].dash for other in main if methods[other].kind == method.kind}
            free = [look for look in _FURTHER if look[0] not in taken]
            dash, marker = free[seen[method.kind] % len(free)]
            width = min(own[label].width, _THIN)
            own[label] = own[label]._replace(dash=dash, marker=marker, width=width)
            seen[method.kind] += 1
    return own


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
    """Return the end of the range on the bad side, with half of the lines; None for no end."""
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
    log = x.get("type") == "log"
    places = [
        (log10(x_value) if log else x_value, e.mean, label)
        for label, line in lines.items()
        for x_value, e in line
    ]
    room = _WIDTH * (max(places)[0] - min(places)[0])  # values of nearer points share a stack
    beyond = [point for point in places if isfinite(point[1]) and not low <= point[1] <= high]
    notes: list[Spec] = []
    look = {"showarrow": False, "bgcolor": var("page"), "borderpad": 0, "xshift": 14}
    stacks: Counter[tuple[float, bool]] = Counter()
    first = None
    for place, value, label in sorted(beyond, key=lambda note: (note[0], -note[1])):
        first = place if first is None or place - first > room else first
        above = value > high
        depth = 8 + _APART * stacks[first, above]
        stacks[first, above] += 1
        edge = {"x": place, "y": y["range"][above], "yshift": -depth if above else depth}
        font = {"size": 10, "color": styles[label].colour}
        notes.append({**look, **edge, "text": f"{value:.3g}", "name": label, "font": font})
    return {"data": data, "layout": {"xaxis": x, "yaxis": y, "annotations": notes}}


def _trace(label: str, style: LineStyle, line: Line, low: float, high: float) -> Spec:
    values = [number(e.mean) for _, e in line]
    trace: Spec = {
        **{"type": "scatter", "name": label, "meta": label, "hovertemplate": "%{x}: %{text}"},
        "mode": "lines" if style.marker == "none" else "lines+markers",
        "x": [x for x, _ in line],
        "y": [None if v is None else min(max(v, low), high) for v in values],
        "text": ["" if v is None else f"{v:.3g}" for v in values],
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


def number(value: float) -> float | None:
    """Return six digits, or None where there is no number."""
    return float(f"{value:.6g}") if isfinite(value) else None
