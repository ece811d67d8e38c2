"""The colours of a page, for light and for dark screens, and what describes a line in a chart.

Colours are named here and written into figures as `var(--name)`; the page fills in the palette of
the reader's colour scheme. The hues are near Okabe and Ito's, moved as little as it takes to be
told apart by colour-blind readers on both backgrounds (tests/report/test_style.py). Colour alone
never tells two methods apart: markers and dashes differ too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ocm_core.results.study import Method

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


def palettes() -> dict[str, dict[str, str]]:
    """Return the colours of both schemes."""
    return {"light": LIGHT, "dark": DARK}


def var(name: str) -> str:
    """Return a named colour, as CSS writes it."""
    return f"var(--{name})"


@dataclass(frozen=True)
class LineStyle:
    """The line of a method in every chart: its group in the legend, colour, marker and dash."""

    group: str
    hue: str
    marker: str
    dash: str = "solid"
    width: float = 1.8

    @property
    def colour(self) -> str:
        """Return the colour as CSS writes it."""
        return var(self.hue)

    @property
    def is_open(self) -> bool:
        """Tell whether the marker is hollow."""
        return self.marker.endswith("-open")

    @property
    def marker_path(self) -> str:
        """Return the marker around the origin, for the legend."""
        return _MARKER_PATHS[self.marker.removesuffix("-open")]

    @property
    def dash_array(self) -> str:
        """Return the dashes, for the legend."""
        return _DASH_ARRAYS[self.dash]


_MARKER_PATHS = {
    "none": "",
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "square": "M-3.5-3.5h7v7h-7z",
    "diamond": "M0-5l5 5l-5 5l-5-5z",
    "triangle-up": "M0-5l4.5 8h-9z",
    "triangle-down": "M0 5l4.5-8h-9z",
    "cross": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "x": "M-4-4l8 8m0-8l-8 8",
    "star": "M0-5l1.5 3.2l3.5.4l-2.6 2.4l.7 3.5l-3.1-1.7l-3.1 1.7l.7-3.5l-2.6-2.4l3.5-.4z",
}
_DASH_ARRAYS = {
    "solid": "none",
    "dot": "2 3",
    "dash": "6 4",
    "longdash": "10 4",
    "dashdot": "7 3 2 3",
}


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
_RELATIVE_DASH, _THIN = "longdash", 1.8
_ROUTES = tuple(
    LineStyle(THIS_WORK, hue, marker, dash, width)
    for hue, marker, dash, width in (
        *(("vermillion", "circle", "solid", 3.0), ("blue", "square", "solid", 2.4)),
        *(("green", "diamond", "solid", 2.4), ("purple", "triangle-up", "dash", 1.8)),
        *(("orange", "triangle-down", "dashdot", 1.8), ("sky", "star", "longdash", 1.8)),
        *(("ink", "x", "dot", 1.8), ("ink", "square-open", "dash", 1.8)),
        *(("vermillion", "diamond-open", "dot", 1.8), ("blue", "circle-open", "dashdot", 1.8)),
    )
)
_SOLVERS = tuple(
    LineStyle(SOLVERS, "grey", marker, dash)
    for marker, dash in (("x", "solid"), ("cross", "dash"), ("diamond-open", "dot"), *_FURTHER[3:])
)


def route_styles(is_solver: Mapping[str, bool]) -> dict[str, LineStyle]:
    """Return lines for ways to sample: this work in colours first, then solvers in grey."""
    ours = [label for label, solver in is_solver.items() if not solver]
    theirs = [label for label, solver in is_solver.items() if solver]
    return {
        **{label: _ROUTES[i % len(_ROUTES)] for i, label in enumerate(ours)},
        **{label: _SOLVERS[i % len(_SOLVERS)] for i, label in enumerate(theirs)},
    }


def method_styles(methods: Mapping[str, Method]) -> dict[str, LineStyle]:
    """Return the line of each method label; labels of one kind share its hue and no dash.

    A label that stands for its kind (`ocm`, or the only one of the kind) looks like it. So does one
    that stands for the kind among relative heads (`ocm_relative`), but for its dash and an
    open marker. The others are variants.
    """
    kinds = {label: method.kind for label, method in methods.items()}
    own = {label: _own_style(method, methods) for label, method in methods.items()}
    main = {m: own[m] for m in methods if _stands_for_kind(methods[m], methods)}
    seen: Counter[str] = Counter()
    styles = {}
    for label, kind in kinds.items():
        if label in main:
            styles[label] = main[label]
            continue
        taken = {main[other].dash for other in main if kinds[other] == kind}
        free = [look for look in _FURTHER if look[0] not in taken]
        dash, marker = free[seen[kind] % len(free)]
        width = min(own[label].width, _THIN)
        styles[label] = replace(own[label], dash=dash, marker=marker, width=width)
        seen[kind] += 1
    return styles


def _stands_for_kind(method: Method, methods: Mapping[str, Method]) -> bool:
    alike = [
        other
        for other in methods.values()
        if (other.kind, other.is_relative) == (method.kind, method.is_relative)
    ]
    return len(alike) == 1 or method.label in (method.kind, f"{method.kind}_relative")


def _own_style(method: Method, methods: Mapping[str, Method]) -> LineStyle:
    """Return the style of the kind; a relative head is thinner beside one of the papers' form."""
    look = method.known.profile
    base = LineStyle(look.group, look.hue, look.marker, look.dash, look.width)
    if not method.is_relative:
        return base
    beside = any(m.kind == method.kind and not m.is_relative for m in methods.values())
    return replace(
        base,
        group=RELATIVE,
        dash=_RELATIVE_DASH,
        marker=f"{base.marker}-open",
        width=min(base.width, _THIN) if beside else base.width,
    )
