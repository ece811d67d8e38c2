"""A page as data: sections of text, figures and tables. `render.py` turns it into HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from ocm_core.report.result_table import ResultTable, digits
from ocm_core.report.style import GROUPS, LineStyle
from ocm_core.results.claims import CheckedClaim
from ocm_core.results.table import Value as Value

ControlValues = Mapping[str, str]  # by the name of a control: its value at which a pane is shown

BOX = 400  # the side of a panel, in SVG units


@dataclass(frozen=True)
class DataTable:
    """Numbers to read on the page, and to download as a CSV file of this name."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def csv(self) -> str:
        """Return the rows with six digits."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([digits(value, 6) for value in row] for row in self.rows)
        return text.getvalue()

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Tell which columns hold numbers, and so are aligned to the right."""
        places = range(len(self.columns))
        return tuple(any(isinstance(row[i], int | float) for row in self.rows) for i in places)

    @property
    def link(self) -> str:
        """Return the file as an address inside the page."""
        return f"data:text/csv;charset=utf-8,{quote(self.csv)}"


@dataclass(frozen=True)
class Plot:
    """A Plotly figure as a plain tree; traces carry their method's label in `meta`."""

    title: str
    spec: Mapping[str, Any]
    at: ControlValues = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """A square scatter plot as one SVG path in a box of `BOX` units."""

    title: str
    note: str
    path: str
    hue: str


@dataclass(frozen=True)
class Picture:
    """A picture inside the page, `width` by `height` pixels."""

    title: str
    alt: str
    uri: str
    width: int
    height: int
    at: ControlValues = field(default_factory=dict)


@dataclass(frozen=True)
class PictureMatrix:
    """Pictures in rows and columns that have names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Picture | Panel | None, ...]], ...]
    at: ControlValues = field(default_factory=dict)


Pane = Plot | PictureMatrix


@dataclass(frozen=True)
class Control:
    """A choice of the reader: panes that name this control are shown at their value of it."""

    name: str
    label: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class ColourBar:
    """The meaning of the colours of a picture, from one end to the other."""

    colours: tuple[str, ...]
    low: str
    high: str


@dataclass(frozen=True)
class Figure:
    """Panes with a caption, what a screen reader says of them, and the numbers underneath.

    Panes stand side by side where there is room, as small multiples (square, or flat strips), as
    pictures, or alone. The legend shows each method's line, and brings out the chosen; where some
    are brought out from the start, the others are grey until they are pointed at.
    """

    id: str
    caption: str
    label: str
    panes: tuple[Pane, ...]
    table: DataTable
    legend: Mapping[str, LineStyle] | None = None
    controls: tuple[Control, ...] = ()
    arrangement: Literal["beside", "small", "strips", "pictures", "alone"] = "beside"
    brought_out: tuple[str, ...] = ()  # all, if none are named
    colour_bar: ColourBar | None = None

    @property
    def legend_groups(self) -> dict[str, list[tuple[str, LineStyle]]]:
        """Return the entries of the legend by group."""
        entries = (self.legend or {}).items()
        groups = {
            g: [(label, style) for label, style in entries if style.group == g] for g in GROUPS
        }
        return {group: styles for group, styles in groups.items() if styles}

    @property
    def choices(self) -> tuple[Control, ...]:
        """Return the controls that leave something to choose."""
        return tuple(control for control in self.controls if len(control.values) > 1)


@dataclass(frozen=True)
class ClaimTable:
    """Claims with their cases and verdicts."""

    claims: tuple[CheckedClaim, ...]


@dataclass(frozen=True)
class Headline:
    """The results in small, with the claims as ticks beside them."""

    table: ResultTable
    claims: tuple[CheckedClaim, ...]


@dataclass(frozen=True)
class Facts:
    """Names and values; `folded` ones are for those who check."""

    items: Mapping[str, str]
    folded: Mapping[str, str] = field(default_factory=dict)
    folded_title: str = ""


@dataclass(frozen=True)
class GlossaryEntry:
    """The meaning of a label: a line of words, and an equation."""

    label: str
    text: str
    equation: str = ""


@dataclass(frozen=True)
class Glossary:
    """Where every label of the page leads."""

    entries: tuple[GlossaryEntry, ...]


PageBlock = str | Figure | DataTable | ResultTable | Headline | ClaimTable | Facts | Glossary


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; left out of the page where there are none.

    The finding is the one sentence that is seen while the section is folded.
    """

    id: str
    title: str
    blocks: tuple[PageBlock, ...]
    finding: str = ""


@dataclass(frozen=True)
class Page:
    """One HTML file. Where it has something to see at a glance, the rest is folded."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    summary: tuple[str, ...] = ()
    glance: tuple[PageBlock, ...] = ()

    @property
    def blocks(self) -> Iterator[PageBlock]:
        """Iterate over everything on the page."""
        yield from self.glance
        for section in self.sections:
            yield from section.blocks

    @property
    def explained(self) -> dict[str, GlossaryEntry]:
        """Return what the glossary has, by label."""
        found = (block.entries for block in self.blocks if isinstance(block, Glossary))
        return {entry.label: entry for entries in found for entry in entries}
