"""The tidy table of results: one row per measured value, ten columns, exact floats in a CSV file.

A column that does not apply is empty: None for numbers, "" for names. A sample that diverged has a
row with the value NaN; what was not measured has no row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ocm_core.errors import OcmError, unknown

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
_FLOATS = ("guidance", "value", "error")


class Results(Sequence[Row]):
    """Rows in their order."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = tuple(rows)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __add__(self, other: Iterable[Row]) -> Results:
        return Results((*self.rows, *other))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and self.text() == other.text()

    def __hash__(self) -> int:
        return hash(self.rows)

    def select(self, **columns: Value | Sequence[Value]) -> Results:
        """Return the rows with these values; a tuple or list offers a choice of values."""
        wanted = {name: _choices(value) for name, value in columns.items()}
        for name in wanted:
            if name not in COLUMNS:
                raise OcmError(f"results: column {unknown(name, COLUMNS)}")
        return Results(
            row for row in self.rows if all(getattr(row, name) in v for name, v in wanted.items())
        )

    def distinct(self, column: str) -> list[Any]:
        """Return the values of a column, each once: numbers rising, names as they first appear."""
        values = dict.fromkeys(getattr(row, column) for row in self.rows)
        known = [value for value in values if value not in ("", None)]
        return sorted(known) if column in ("nfe", "guidance") else known

    def groups(self, *columns: str) -> dict[tuple[Any, ...], Results]:
        """Split the rows by the values of some columns."""
        parts: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows:
            parts.setdefault(tuple(getattr(row, name) for name in columns), []).append(row)
        return {key: Results(rows) for key, rows in parts.items()}

    def value(self, **columns: Value | Sequence[Value]) -> float:
        """Return the only value with these columns."""
        rows = self.select(**columns)
        if len(rows) != 1:
            where = ", ".join(f"{name}={value!r}" for name, value in columns.items())
            raise OcmError(f"results: {len(rows)} rows with {where}, expected one")
        return float(rows[0].value)

    def text(self) -> str:
        """Return the table as CSV, with floats that read back exactly."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_written(k, getattr(row, k)) for k in COLUMNS] for row in self.rows)
        return file.getvalue()

    def write(self, path: Path) -> None:
        """Write the table as CSV."""
        path.write_text(self.text(), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a table; a damaged file is an error that names its line."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OcmError(f"{path}: not readable as a table of results ({error})") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> Results:
        """Read a table from CSV text; `source` is what error messages call it."""
        lines = csv.reader(io.StringIO(text))
        heads = next(lines, [])
        if tuple(heads) != COLUMNS:
            raise OcmError(
                f"{source}: has the columns {','.join(heads)[:200] or 'none'}, expected "
                f"{','.join(COLUMNS)}; restore the file with git or make the report again"
            )
        try:
            return cls([_row(line, source, number) for number, line in enumerate(lines, 2)])
        except csv.Error as error:
            raise OcmError(f"{source}: {error}; restore the file with git") from error


def _choices(value: Value | Sequence[Value]) -> Sequence[Value]:
    return value if isinstance(value, list | tuple) else (value,)


def _written(name: str, value: Value) -> str:
    if value is None:
        return ""
    return repr(float(value)) if name in _FLOATS else str(value)


def _row(line: Sequence[str], source: str, number: int) -> Row:
    try:
        score, sampler, method, timesteps, nfe, guidance, replicate, measure, value, error = line
        return Row(
            measure,
            float(value),
            float(error) if error else None,
            *(score, sampler, method, timesteps),
            int(nfe) if nfe else None,
            float(guidance) if guidance else None,
            replicate,
        )
    except ValueError as problem:
        raise OcmError(
            f"{source}, line {number}: {problem}; restore the file with git or make the report "
            "again"
        ) from problem
