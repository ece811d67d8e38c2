"""Results as papers print them: a row a method, a column a number of steps, the best in bold.

Such a table can be copied as LaTeX (with booktabs) and as CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ocm_core.results.table import Value

Mark = Literal["", "best", "second"]


def digits(value: Value, count: int) -> str:
    """Return a number with so many significant digits; blank for None and NaN."""
    if value is None or value != value:
        return ""
    return f"{value:.{count}g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Result:
    """One cell."""

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
        known = self.error is not None and self.error == self.error
        return f"±{_short(self.error)}" if known and self.number else ""


def _short(value: float | None) -> str:
    assert value is not None
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1g}"


@dataclass(frozen=True)
class ResultRow:
    """One method."""

    label: str
    cells: tuple[Result, ...]
    published: bool = False  # as the paper prints it, not ranked among ours


@dataclass(frozen=True)
class ResultGroup:
    """Rows that are ranked against each other."""

    title: str
    rows: tuple[ResultRow, ...]


@dataclass(frozen=True)
class ResultTable:
    """Groups of rows under the same columns."""

    name: str
    caption: str
    stub: str  # what rows are
    columns: tuple[str, ...]
    groups: tuple[ResultGroup, ...]

    @property
    def copies(self) -> dict[str, str]:
        """Return the text that each button copies."""
        return {"LaTeX": self.latex, "CSV": self.csv}

    @property
    def latex(self) -> str:
        """Return the table for LaTeX, with booktabs."""
        width = len(self.columns) + 1
        lines = [rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\toprule"]
        lines.append(_latex_row([self.stub, *self.columns]))
        for group in self.groups:
            lines += [r"\midrule", rf"\multicolumn{{{width}}}{{l}}{{{_latex(group.title)}}} \\"]
            lines += [
                " & ".join([_latex(row.label), *map(_latex_cell, row.cells)]) + r" \\"
                for row in group.rows
            ]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    @property
    def csv(self) -> str:
        """Return the means with six digits and their errors."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        pairs = [(name, f"{name} ±") for name in self.columns]
        writer.writerow(["group", self.stub, *(name for pair in pairs for name in pair)])
        for group, row in self._rows():
            pairs_of_row = [(digits(c.mean, 6), digits(c.error, 3)) for c in row.cells]
            writer.writerow([group, row.label, *(x for pair in pairs_of_row for x in pair)])
        return text.getvalue()

    def _rows(self) -> Iterator[tuple[str, ResultRow]]:
        return ((group.title, row) for group in self.groups for row in group.rows)


def _latex(text: str) -> str:
    special = {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$"}
    return "".join(special.get(letter, letter) for letter in text)


def _latex_row(names: list[str]) -> str:
    return " & ".join(map(_latex, names)) + r" \\"


def _latex_cell(cell: Result) -> str:
    if not cell.number:
        return "--"
    marked = {"best": r"\textbf{%s}", "second": r"\underline{%s}", "": "%s"}[cell.rank]
    spread = rf"$_{{\pm {cell.spread.removeprefix('±')}}}$" if cell.spread else ""
    return marked % cell.number + spread + r"$^\approx$" * cell.tied
