"""A page as data: sections of text, figures and tables. `render.py` turns it into HTML."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from ocm_core.report.charts import GROUPS, LineStyle
from ocm_core.results.claims import CheckedClaim
from ocm_core.results.study import Method
from ocm_core.results.table import Value, csv_text

ControlValues = Mapping[str, str]  # by the name of a control: its value at which a pane is shown
Mark = Literal["", "best", "second"]

BOX = 400  # the side of a panel, in SVG units


def digits(value: Value, count: int) -> str:
    """Return a number with so many significant digits; blank for None and NaN."""
    if value is None or value != value:
        return ""
    return f"{value:.{count}g}" if isinstance(value, float) else str(value)


class DataTable(NamedTuple):
    """Numbers to read on the page, and to download as a CSV file of this name."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Tell which columns hold numbers, and so are aligned to the right."""
        places = range(len(self.columns))
        return tuple(any(isinstance(row[i], int | float) for row in self.rows) for i in places)

    @property
    def link(self) -> str:
        """Return the rows with six digits, as the address of a CSV file inside the page."""
        rows = ([digits(value, 6) for value in row] for row in self.rows)
        return f"data:text/csv;charset=utf-8,{quote(csv_text([self.columns, *rows]))}"


class Result(NamedTuple):
    """One cell of a table of results."""

    mean: float | None = None
    error: float | None = None
    rank: Mark = ""
    tied: bool = False  # within noise of the best
    note: str = ""

    @property
    def number(self) -> str:
        """Return three digits, or all before the point."""
        if self.mean is None or self.mean != self.mean:
            return ""
        return f"{self.mean:.0f}" if abs(self.mean) >= 1000 else f"{self.mean:#.3g}".rstrip(".")

    @property
    def spread(self) -> str:
        """Return the standard error with one digit."""
        if self.error is None or self.error != self.error or not self.number:
            return ""
        return f"±{self.error:.0f}" if abs(self.error) >= 10 else f"±{self.error:.1g}"

    @property
    def latex(self) -> str:
        """Return the cell for LaTeX."""
        marked = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}[self.rank]
        spread = rf"$_{{\pm {self.spread.removeprefix('±')}}}$" if self.spread else ""
        return marked % self.number + spread + r"$^\approx$" * self.tied if self.number else "--"


class ResultRow(NamedTuple):
    """One method."""

    label: str
    cells: tuple[Result, ...]
    published: bool = False  # as the paper prints it, not ranked among ours


class ResultGroup(NamedTuple):
    """Rows that are ranked against each other."""

    title: str
    rows: tuple[ResultRow, ...]


class ResultTable(NamedTuple):
    """Results as papers print them: a row a method, a column a number of steps."""

    name: str
    caption: str
    stub: str  # what rows are
    columns: tuple[str, ...]
    groups: tuple[ResultGroup, ...]

    @property
    def copies(self) -> dict[str, str]:
        """Return the text that each button copies."""
        return {"LaTeX": self._latex, "CSV": self._csv}

    @property
    def _latex(self) -> str:
        """Return the table with booktabs."""
        escape = str.maketrans({letter: f"\\{letter}" for letter in "_%&#$"})
        width = len(self.columns) + 1
        lines = [rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines.append(" & ".join(n.translate(escape) for n in (self.stub, *self.columns)) + r" \\")
        for title, rows in self.groups:
            lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{{title.translate(escape)}}} \\"]
            named = ([row.label.translate(escape), *(c.latex for c in row.cells)] for row in rows)
            lines += [" & ".join(cells) + r" \\" for cells in named]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    @property
    def _csv(self) -> str:
        """Return the means with six digits and their errors."""
        heads = [name for column in self.columns for name in (column, f"{column} ±")]
        lines = [["group", self.stub, *heads]]
        for title, row in ((title, row) for title, rows in self.groups for row in rows):
            pairs = [(digits(cell.mean, 6), digits(cell.error, 3)) for cell in row.cells]
            lines.append([title, row.label, *(x for pair in pairs for x in pair)])
        return csv_text(lines)


class Plot(NamedTuple):
    """A Plotly figure as a plain tree; traces carry their method's label in `meta`."""

    title: str
    spec: Mapping[str, Any]
    at: ControlValues = {}


class Panel(NamedTuple):
    """A square scatter plot as one SVG path in a box of `BOX` units."""

    title: str
    note: str
    path: str
    hue: str


class Picture(NamedTuple):
    """A picture inside the page, `width` by `height` pixels."""

    alt: str
    uri: str
    width: int
    height: int


class PictureMatrix(NamedTuple):
    """Pictures in rows and columns that have names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Picture | Panel | None, ...]], ...]  # with their names
    at: ControlValues = {}


class Figure(NamedTuple):
    """Panes with a caption, what a screen reader says of them, and the numbers underneath.

    The legend brings out the chosen line; where some are brought out from the start, the others are
    grey until they are pointed at. The reader sees the panes that are at the control's value.
    """

    id: str
    caption: str
    label: str
    panes: tuple[Plot | PictureMatrix, ...]
    table: DataTable
    legend: Mapping[str, LineStyle] | None = None
    control: str = ""
    arrangement: Literal["beside", "small", "strips", "alone"] = "beside"
    brought_out: tuple[str, ...] = ()  # all, if none are named
    colour_bar: str = ""  # what the light end of the colours means; the dark end is 0

    @property
    def legend_groups(self) -> dict[str, list[tuple[str, LineStyle]]]:
        """Return the entries of the legend by group."""
        entries = (self.legend or {}).items()
        groups = {g: [entry for entry in entries if entry[1].group == g] for g in GROUPS}
        return {group: styles for group, styles in groups.items() if styles}

    @property
    def choices(self) -> list[str]:
        """Return the values of the control, if they leave something to choose."""
        values = dict.fromkeys(p.at[self.control] for p in self.panes if self.control in p.at)
        return [*values] if len(values) > 1 else []


class Claims(NamedTuple):
    """Claims with their cases and verdicts; `relative` heads are not compared with the paper's."""

    claims: tuple[CheckedClaim, ...]
    relative: list[str]


class Headline(NamedTuple):
    """The results in small, with the claims as ticks beside them."""

    table: ResultTable
    claims: tuple[CheckedClaim, ...]


class Provenance(NamedTuple):
    """What made the results; the settings are for those who check."""

    made: Mapping[str, Any]  # provenance.json
    sample: Mapping[str, Any]  # parameters
    remake: str
    settings: Mapping[str, str]


class Glossary(NamedTuple):
    """Where every label of the page leads."""

    methods: Mapping[str, Method]
    samplers: Mapping[str, Mapping[str, Any]]


PageBlock = str | Figure | DataTable | ResultTable | Headline | Claims | Provenance | Glossary


class Section(NamedTuple):
    """Blocks under a heading; left out of the page where there are none."""

    id: str
    title: str
    blocks: tuple[PageBlock, ...]
    finding: str = ""  # the one sentence that is seen while the section is folded


class Page(NamedTuple):
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
