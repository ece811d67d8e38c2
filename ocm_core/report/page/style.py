"""The colours of a page, for light and for dark screens, and what describes a line in a chart.

Colours are named here and written into figures as `var(--name)`; the page fills in the palette of
the reader's colour scheme. The hues are near Okabe and Ito's, moved as little as it takes to be
told apart by colour-blind readers on both backgrounds (tests/report/page/test_style.py).
"""

from __future__ import annotations

from dataclasses import dataclass

LIGHT = {
    "page": "#ffffff",
    "panel": "#f6f7f8",
    "ink": "#1c2126",
    "soft": "#5a646e",
    "rule": "#dfe3e7",
    "accent": "#0b63a5",
    "good": "#00724f",
    "bad": "#b0400a",
    "vermillion": "#b94c00",
    "blue": "#0b6fb0",
    "green": "#09a071",
    "purple": "#a2426e",
    "orange": "#ca8703",
    "sky": "#3d9cd0",
    "grey": "#8993a2",
    "density-0": "#ffffff",
    "density-1": "#cfe3f2",
    "density-2": "#7fb3d9",
    "density-3": "#0b63a5",
}
DARK = {
    "page": "#14181c",
    "panel": "#1c2227",
    "ink": "#e6e9ec",
    "soft": "#a3adb7",
    "rule": "#333c45",
    "accent": "#7cc0f2",
    "good": "#4fc9a0",
    "bad": "#ff9a5c",
    "vermillion": "#f1761d",
    "blue": "#4baaeb",
    "green": "#32c397",
    "purple": "#e792c8",
    "orange": "#ffc038",
    "sky": "#95d6ff",
    "grey": "#7a8891",
    "density-0": "#14181c",
    "density-1": "#1d3b53",
    "density-2": "#3277a8",
    "density-3": "#9fd3f7",
}
BAND_OPACITY = 0.18
HUES = ("vermillion", "blue", "green", "purple", "orange", "sky", "grey", "ink")


def palettes() -> dict[str, dict[str, str]]:
    """Both schemes, each hue with a translucent `-band` for error bands."""
    return {
        scheme: colours | {f"{hue}-band": _translucent(colours[hue]) for hue in HUES}
        for scheme, colours in (("light", LIGHT), ("dark", DARK))
    }


def _translucent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"


def var(name: str) -> str:
    """A named colour, as CSS writes it."""
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
        return var(self.hue)

    @property
    def band(self) -> str:
        return var(f"{self.hue}-band")

    @property
    def is_open(self) -> bool:
        return self.marker.endswith("-open")

    @property
    def marker_path(self) -> str:
        """The marker around the origin, for the legend."""
        return _MARKER_PATHS[self.marker.removesuffix("-open")]

    @property
    def dash_array(self) -> str:
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


LEARNED, RELATIVE = "Learned", "Learned, relative to a baseline"
EXACT, PROBED, FIXED = "Exact Jacobian", "Probed while sampling", "Fixed"
REFERENCE = "Reference"
OURS, RIVALS = "Ours", "Solvers of diffusers"  # of routes, in the figure of the frontier
GROUPS = (
    LEARNED,
    RELATIVE,
    EXACT,
    PROBED,
    FIXED,
    REFERENCE,
    OURS,
    RIVALS,
)  # in the order of the legend
