"""The colours of a page, for light and for dark screens, and what describes a line in a chart.

Colours are named here and written into figures as `var(--name)`; the page fills in the palette of
the reader's colour scheme. The hues are near Okabe and Ito's, moved as little as it takes to be
told apart by colour-blind readers on both backgrounds (tests/report/test_charts.py). Colour alone
never tells two methods apart: markers and dashes differ too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

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
        """Return the colour as CSS writes it."""
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


def route_styles(labels: Collection[str], solvers: Collection[str]) -> dict[str, LineStyle]:
    """Return lines for ways to sample: this work in colours first, then solvers in grey."""
    sides = [[m for m in labels if (m in solvers) == side] for side in (False, True)]
    return {
        label: styles[i % len(styles)]
        for side, styles in zip(sides, (_ROUTES, _SOLVERS), strict=True)
        for i, label in enumerate(side)
    }


def method_styles(methods: Mapping[str, Method]) -> dict[str, LineStyle]:
    """Return the line of each method label; labels of one kind share its hue and no dash.

    A label that stands for its kind (`ocm`, or the only one of the kind) looks like it. So does one
    that stands for the kind among relative heads (`ocm_relative`), but for its dash and an
    open marker. The others are variants.
    """
    own = {label: _own_style(method, methods) for label, method in methods.items()}
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


def _own_style(method: Method, methods: Mapping[str, Method]) -> LineStyle:
    """Return the style of the kind; a relative head is thinner beside one of the papers' form."""
    look = method.known.profile
    base = LineStyle(look.group, *look.line)
    if not method.is_relative:
        return base
    beside = any(m.kind == method.kind and not m.is_relative for m in methods.values())
    return base._replace(
        group=RELATIVE,
        dash=_RELATIVE_DASH,
        marker=f"{base.marker}-open",
        width=min(base.width, _THIN) if beside else base.width,
    )
