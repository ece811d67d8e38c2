"""The tidy table of results: one row per measured value, ten columns, exact floats in a CSV file.

A column that does not apply is empty: None for numbers, "" for names. A sample that diverged has a
row with the value NaN; what was not measured has no row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading

Value = str | int | float | None


class Row(NamedTuple):
    """One value of one measure."""

    measure: str
    value: float
    error: float | None = None  # standard error of a mean over images or points
    score: str = ""
    sampler: str = ""
    method: str = ""
    timesteps: str = ""  # name of a timesteps rule, or a single timestep
    nfe: int | None = None
    guidance: float | None = None
    replicate: str = ""  # "seed0", or "seed0/without3" for a jackknife value


COLUMNS = (
    *("score", "sampler", "method", "timesteps", "nfe", "guidance"),
    *("replicate", "measure", "value", "error"),
)
UNGUIDED = 1.0
_NUMBERS = {"nfe": int, "guidance": float, "value": float, "error": float}
REMEDY = "restore the file with git or make the report again"


class Results(tuple[Row, ...]):
    """Rows in their order."""

    def select(self, **columns: Value | Sequence[Value]) -> Results:
        """Return the rows with these values; a tuple or list offers a choice of values."""
        wanted = [(k, v if isinstance(v, list | tuple) else (v,)) for k, v in columns.items()]
        return Results(row for row in self if all(getattr(row, k) in v for k, v in wanted))

    def distinct(self, column: str) -> list[Any]:
        """Return the values of a column, each once: numbers rising, names as they first appear."""
        values = dict.fromkeys(getattr(row, column) for row in self)
        known = [value for value in values if value not in ("", None)]
        return sorted(known) if column in _NUMBERS else known

    def groups(self, *columns: str) -> dict[tuple[Any, ...], Results]:
        """Split the rows by the values of some columns."""
        parts: dict[tuple[Any, ...], list[Row]] = {}
        for row in self:
            parts.setdefault(tuple(getattr(row, name) for name in columns), []).append(row)
        return {key: Results(rows) for key, rows in parts.items()}

    @property
    def is_guided(self) -> bool:
        """Tell whether any guidance but 1 was used."""
        return any(scale != UNGUIDED for scale in self.distinct("guidance"))

    def text(self) -> str:
        """Return the table as CSV, with floats that read back exactly."""
        lines: list[Sequence[Value]] = [COLUMNS]
        for row in self:
            cells = ((_NUMBERS.get(name), getattr(row, name)) for name in COLUMNS)
            lines.append([repr(float(x)) if t is float and x is not None else x for t, x in cells])
        return csv_text(lines)

    def write(self, path: Path) -> None:
        path.write_text(self.text(), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a table; a damaged file is an error that names its line."""
        with reading(path, "a table of results", REMEDY):
            return cls.parse(path.read_text("utf-8"), str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> Results:
        """Read a table from CSV text; `source` is what error messages call it."""
        lines = csv.reader(io.StringIO(text))
        heads = next(lines, [])
        if tuple(heads) != COLUMNS:
            has, wanted = ",".join(heads)[:200] or "none", ",".join(COLUMNS)
            raise OcmError(f"{source}: has the columns {has}, expected {wanted}; {REMEDY}")
        rows = []
        try:
            for line in lines:
                cells: dict[str, Any] = dict(zip(COLUMNS, line, strict=True))
                for name, number in _NUMBERS.items():
                    cells[name] = number(cells[name]) if cells[name] or name == "value" else None
                rows.append(Row(**cells))
        except (ValueError, csv.Error) as error:
            raise OcmError(f"{source}, line {lines.line_num}: {error}; {REMEDY}") from error
        return cls(rows)


def csv_text(lines: Iterable[Iterable[Value]]) -> str:
    """Return lines of cells as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(lines)
    return file.getvalue()
