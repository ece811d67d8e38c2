"""Tables of the documents that are views of recorded metrics.

Such a table's first cell names an experiment and a path into its metrics, `name: path`; the first
cell of a row is the rest of the path (a method, or a sampler and a method), the head of a column
its last part: `K = 10`, or `K = 10, cfg = 1.5`. A figure keeps its number of decimals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ocm_core.compare.recorded import Key, recorded
from ocm_core.compare.revisions import Revision
from ocm_core.errors import OcmError

DOCUMENTS = (Path("README.md"), Path("docs/results.md"))
_TABLE = re.compile(r"^\| (\w+): ([\w.]+) \|(.*)\n\|[- |]+\n((?:\|.*\n)+)", re.MULTILINE)
_ROW = re.compile(r"^\| `([\w.]+)` \| (.*) \|$", re.MULTILINE)
_COLUMN = re.compile(r"K = (\d+)(?:, cfg = ([\d.]+))?")


def named_in(text: str) -> set[str]:
    """The experiments whose figures the text has in tables."""
    return {name for name, *_ in _TABLE.findall(text)}


def refilled(text: str, revision: Revision) -> str:
    """The text with every figure as the revision's metrics have it."""
    numbers = {name: recorded(revision, name).numbers for name in named_in(text)}

    def table(found: re.Match[str]) -> str:
        name, path, header, body = found.groups()
        columns = [
            (f"K{steps}", *[f"cfg{scale}"] * bool(scale))
            for steps, scale in _COLUMN.findall(header)
        ]

        def row(line: re.Match[str]) -> str:
            method, figures = line[1], line[2].split(" | ")
            if len(figures) != len(columns):
                raise OcmError(f"{name}: {path}, row {method!r}: expected {len(columns)} figures")
            keys = [(*path.split("."), *method.split("."), *column) for column in columns]
            cells = [
                _figure(numbers[name], name, *pair) for pair in zip(keys, figures, strict=True)
            ]
            return f"| `{method}` | {' | '.join(cells)} |"

        return found[0].replace(body, _ROW.sub(row, body))

    return _TABLE.sub(table, text)


def _figure(numbers: Mapping[Key, float], name: str, key: Key, shown: str) -> str:
    if key not in numbers:
        raise OcmError(
            f"{name}: the tables of {' and '.join(map(str, DOCUMENTS))} have {'.'.join(key)}, and"
            f" reports/{name}.metrics.json has not; remove the row or the column"
        )
    return f"{numbers[key]:.{len(shown.partition('.')[2])}f}"
