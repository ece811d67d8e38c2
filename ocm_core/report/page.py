"""The page as data (sections of text, figures and tables) and its rendering into one HTML file.

Everything is escaped by Jinja; only this package's own style sheet, script and Plotly's bundle go
in as they are. Nothing in the file depends on anything but its arguments: same inputs, same bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ocm_core.report.style import GROUPS, LineStyle, palettes
from ocm_core.report.verdicts import Claim

Value = str | int | float | None

BOX = 400  # the side of a panel, in SVG units


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_digits(value, 6) for value in row] for row in self.rows)
        return text.getvalue()

    @property
    def link(self) -> str:
        return f"data:text/csv;charset=utf-8,{quote(self.csv)}"


@dataclass(frozen=True)
class Plot:
    """A Plotly figure as a plain tree; traces carry their method's label in `meta`."""

    title: str
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """A square scatter plot as one SVG path in a box of `BOX` units."""

    title: str
    note: str
    path: str
    hue: str


@dataclass(frozen=True)
class Grid:
    """Panels side by side."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Figure:
    """Panes with a caption, what a screen reader says of them, and the numbers underneath.

    Panes stand side by side where there is room, or as small multiples (square, or flat strips),
    or one at a time behind tabs. The legend shows each method's line, and brings out the chosen.
    """

    id: str
    caption: str
    label: str
    panes: tuple[Plot | Grid, ...]
    table: Table
    legend: Mapping[str, LineStyle] | None = None
    arrangement: Literal["beside", "small", "strips", "tabs"] = "beside"

    @property
    def legend_groups(self) -> dict[str, list[tuple[str, LineStyle]]]:
        entries = (self.legend or {}).items()
        groups = {
            g: [(label, style) for label, style in entries if style.group == g] for g in GROUPS
        }
        return {group: styles for group, styles in groups.items() if styles}


@dataclass(frozen=True)
class Verdicts:
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    items: Mapping[str, str]


Block = str | Figure | Table | Verdicts | Facts


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    title: str
    subtitle: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]


def render(page: Page) -> str:
    loader = PackageLoader("ocm_core.report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"kind": _kind, "json": _json, "prose": _prose, "number": _number}
    return environment.get_template("page.html").render(
        page=page,
        css=Markup(loader.get_source(environment, "page.css")[0]),
        script=Markup(loader.get_source(environment, "page.js")[0]),
        plotly=Markup(get_plotlyjs()),
        palettes=palettes(),
        box=BOX,
    )


def _kind(block: Block | Plot | Grid) -> str:
    return type(block).__name__.lower()


def _number(value: Value) -> str:
    return _digits(value, 4)


def _prose(text: str) -> str:
    """Equations such as K = 5 do not break over lines."""
    return text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")


def _json(value: Any) -> Markup:
    """JSON that no `</script>` can end, with keys in a fixed order."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))


def _digits(value: Value, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
