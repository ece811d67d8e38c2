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
        """Whether the row is about our method: of the same kind, and with as many probes.

        The main tables have one probe in training, and name methods as we do.
        """
        if self.probes is None:
            one_probe = method.options.get("probes", 1) == 1
            return self.method == label == method.kind and one_probe
        return self.method == method.kind and self.probes == method.options.get("probes")


def load(path: Path, experiment: str) -> tuple[PublishedRow, ...]:
    """The rows about an experiment of the paper's, by its exact name; none about others."""
    rows = _rows(path)
    names = {experiment, _SHARED.get(experiment, experiment)}
    return tuple(row for name, row in rows if name in names)


def load_bounds(path: Path, experiment: str) -> tuple[PublishedRow, ...]:
    """Of an experiment on the same data with another network: the likelihoods, and no more.

    Distances are of other features, and times, parameters and spreads of that network alone.
    """
    found = tuple(row for name, row in _rows(path) if name == experiment)
    if not found:
        raise OcmError(f"report.paper: {path} has no experiment {experiment!r}")
    return tuple(row for row in found if row.metric == "nll_bpd" and row.table != SEEDS)


def _rows(path: Path) -> list[tuple[str, PublishedRow]]:
    """Each with the name of its experiment."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != _COLUMNS:
            raise OcmError(
                f"{path}: has the columns {', '.join(reader.fieldnames or ())}, expected "
                f"{', '.join(_COLUMNS)}; restore the file with git"
            )
        return [(line["experiment"], _row(line)) for line in reader]


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
