"""Tables of docs/ that come in when the site is built, from `reports/NAME/results.csv`.

A block of one line stands for a table, in the columns' own order:

    ```results
    digits frechet ddpm: beta ocm at nfe 5 10 25
    ```

After the experiment and the measure stands a sampler or a rule of timesteps, then methods; without
it, rows are `sampler.method`. Where an experiment is guided, a column is `10@1.5`.
"""

from __future__ import annotations

import re
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.report.folder import read_folder
from ocm_core.results.measures import measures
from ocm_core.results.replicates import replicates
from ocm_core.results.study import Study
from ocm_core.results.table import Results

_BLOCK = re.compile(r"^```results\n(.*)\n```$", re.MULTILINE)
_LINE = re.compile(r"(\w+) ([\w.]+)((?: [\w.]+)?): ([\w.+ ]+) at nfe ([\d@. ]+)")


def filled(text: str, root: Path) -> str:
    """Put a table in the place of every block."""
    return _BLOCK.sub(lambda block: _table(block[1], root), text)


def _table(line: str, root: Path) -> str:
    found = _LINE.fullmatch(line)
    if not found:
        raise OcmError(f"docs: cannot read the table {line!r}; see workflow/site/tables.py")
    name, measure, place, rows, columns = (part.strip() for part in found.groups())
    folder = read_folder(name, root)
    study = Study(folder.results, folder.params, measures())
    results = folder.results.select(measure=measure, score=study.score)
    heads = [f"nfe {column.replace('@', ', guidance ')}" for column in columns.split()]
    title = ", ".join(filter(None, (study.registry[measure].name, place)))
    lines = [f"| {title} | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for label in rows.split():
        where, _, method = label.rpartition(".")
        cells = [_cell(results, where or place, method, column, line) for column in columns.split()]
        lines.append(f"| `{label}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(results: Results, place: str, method: str, column: str, line: str) -> str:
    """Write a mean with four digits; a sampler stands before a rule of the same name."""
    nfe, _, scale = column.partition("@")
    here = results.select(method=method, nfe=int(nfe))
    if scale:
        here = here.select(guidance=float(scale))
    chosen = here.select(sampler=place) or here.select(sampler="", timesteps=place)
    if not chosen:
        raise OcmError(f"docs: the table {line!r} has {method} at {column}, and the results not")
    return f"{replicates(chosen).estimate.mean:#.4g}".rstrip(".")
