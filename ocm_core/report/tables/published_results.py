"""The paper's results: every number of its tables as printed, a row each of a CSV file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ocm_core.schema.experiment import MethodParams

SEEDS = "seeds"  # the table of means and spreads over seeds
_SHARED = {"cifar10_ls": "cifar10", "cifar10_cs": "cifar10"}  # tables that do not tell them apart
_COLUMNS = (
    *("table", "experiment", "sampler", "method", "steps", "cfg"),
    *("probes", "metric", "value", "std", "note"),
)


@dataclass(frozen=True)
class PublishedRow:
    """One printed number."""

    table: str
    sampler: str
    method: str
    steps: int | None
    guidance: float | None
    probes: int | None
    metric: str
    value: float | None  # None: the note says why
    rounding: float  # half a unit of the last printed digit
    deviation: float | None  # over the paper's seeds
    note: str

    def is_of(self, label: str, method: MethodParams) -> bool:
        """Whether the row is about our method: of the same kind, and with as many probes."""
        if self.probes is None:
            return self.method == label
        return self.method == method.kind and self.probes == method.options.get("probes")


def load(path: Path, experiment: str) -> tuple[PublishedRow, ...]:
    """The rows about an experiment of the paper's, by its exact name; none about others."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != _COLUMNS:
            raise OcmError(
                f"{path}: has the columns {', '.join(reader.fieldnames or ())}, expected "
                f"{', '.join(_COLUMNS)}; restore the file with git"
            )
        names = {experiment, _SHARED.get(experiment, experiment)}
        return tuple(_row(line) for line in reader if line["experiment"] in names)


def _row(line: Mapping[str, str]) -> PublishedRow:
    _, _, decimals = line["value"].partition(".")
    return PublishedRow(
        table=line["table"],
        sampler=line["sampler"],
        method=line["method"],
        steps=int(line["steps"]) if line["steps"] else None,
        guidance=float(line["cfg"]) if line["cfg"] else None,
        probes=int(line["probes"]) if line["probes"] else None,
        metric=line["metric"],
        value=float(line["value"]) if line["value"] else None,
        rounding=0.5 * 10.0 ** -len(decimals),
        deviation=float(line["std"]) if line["std"] else None,
        note=line["note"],
    )
