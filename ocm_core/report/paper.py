"""Results beside the paper's, cell by cell, and whether they agree.

`reports/paper/results.csv` has every number of the paper's tables as printed. Agreement is judged
by the paper's own spread over seeds, which it gives for a few cells.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.project import located
from ocm_core.report.document import DataTable, PageBlock, Section, Value
from ocm_core.report.folder import REMEDY
from ocm_core.results.metrics import UNGUIDED
from ocm_core.results.replicates import NOISE, Estimate, Replicates
from ocm_core.results.study import Method, Setting, Study
from ocm_core.text import listed

FILE = Path("reports/paper/results.csv")
SEEDS = "seeds"  # the table of means and spreads over seeds
_SHARED = {"cifar10_ls": "cifar10", "cifar10_cs": "cifar10"}  # tables that do not tell them apart
_ABLATIONS = ("rademacher", "probes")  # tables that repeat numbers of the main ones
_COLUMNS = (
    *("table", "experiment", "sampler", "method", "steps", "cfg"),
    *("probes", "metric", "value", "std", "note"),
)
# The paper's name and unit of the measures that compare; recall needs Inception's features.
_MEASURES = {
    "bits_per_dim": ("nll_bpd", 1.0),
    "fid": ("fid", 1.0),
    "recall": ("recall_percent", 100.0),
}


@dataclass(frozen=True)
class PublishedRow:
    """One printed number."""

    table: str
    experiment: str
    sampler: str
    method: str
    steps: int | None
    guidance: float | None
    probes: int | None
    metric: str
    value: float | None
    rounding: float  # half a unit of the last printed digit
    deviation: float | None  # over the paper's seeds

    def is_of(self, method: Method) -> bool:
        """Tell whether it is about a method: of its kind, with as many probes.

        The main tables have one probe in training, and name methods as we do.
        """
        probes = method.options.get("probes", 1)
        if self.probes is None:
            return self.method == method.label == method.kind and probes == 1
        return self.method == method.kind and self.probes == probes


def published(study: Study, file: Path = FILE) -> list[PublishedRow]:
    """Return the rows about an experiment of the paper's, by its exact name.

    `report.paper` names one on the same data with another network: only its likelihoods compare.
    """
    file, name = located(file), str(study.param("name", ""))
    if not file.exists():
        return []
    rows, paper = _read(file), study.param("report.paper")
    if not paper:
        return [row for row in rows if row.experiment in (name, _SHARED.get(name, name))]
    theirs = [row for row in rows if row.experiment == paper]
    if not theirs:
        raise OcmError(f"report.paper: {file} has no experiment {paper!r}")
    return [row for row in theirs if row.metric == "nll_bpd" and row.table != SEEDS]


def _read(file: Path) -> list[PublishedRow]:
    with file.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != _COLUMNS:
            raise OcmError(
                f"{file}: has the columns {', '.join(reader.fieldnames or ())}, expected "
                f"{', '.join(_COLUMNS)}; {REMEDY}"
            )
        with reading(file, "the paper's results", REMEDY):
            return [_row(line) for line in reader]


def _row(line: Mapping[str, str]) -> PublishedRow:
    decimals = line["value"].partition(".")[2]
    return PublishedRow(
        table=line["table"],
        experiment=line["experiment"],
        sampler=line["sampler"],
        method=line["method"],
        steps=int(line["steps"]) if line["steps"] else None,
        guidance=float(line["cfg"]) if line["cfg"] else None,
        probes=int(line["probes"]) if line["probes"] else None,
        metric=line["metric"],
        value=float(line["value"]) if line["value"] else None,
        rounding=0.5 * 10.0 ** -len(decimals),
        deviation=float(line["std"]) if line["std"] else None,
    )


@dataclass(frozen=True)
class Compared:
    """One cell of ours; the paper prints some twice: in a table of results, and over seeds."""

    key: str
    setting: Setting
    method: str
    nfe: int
    ours: Estimate  # in the paper's unit, ± over seeds or images
    paper: PublishedRow | None
    seeds: PublishedRow | None

    @property
    def difference(self) -> float | None:
        """Return ours less the paper's, with two digits."""
        row = self.paper or self.seeds
        return (
            None if row is None or row.value is None else float(f"{self.ours.mean - row.value:.2g}")
        )

    @property
    def agrees(self) -> bool | None:
        """Tell whether ours is within the paper's spread; None where it gives none."""
        if self.seeds is None or self.seeds.deviation is None:
            return None
        reach = NOISE * self.seeds.deviation
        return any(
            abs(self.ours.mean - row.value) <= reach + row.rounding
            for row in (self.paper, self.seeds)
            if row is not None and row.value is not None
        )


def compare(study: Study, rows: Sequence[PublishedRow]) -> list[Compared]:
    """Return our cells that the paper has numbers for; it has no heads that are relative."""
    return [one for one in _compared(study, rows) if one.paper or one.seeds] if rows else []


def _compared(study: Study, rows: Sequence[PublishedRow]) -> Iterator[Compared]:
    for key, (metric, unit) in _MEASURES.items():
        grid = study.grids.get(key, {}) if key != "recall" or study.has("fid") else {}
        theirs = [row for row in rows if row.metric == metric]
        first = next(iter(grid)).timesteps if grid else ""
        for setting, columns in grid.items():
            sampler = setting.sampler or ("ddpm" if setting.timesteps == first else "")
            for nfe, at in columns.items():
                for label, cell in at.entries.items():
                    method = study.methods[label]
                    matching = [
                        row
                        for row in theirs
                        if not method.is_relative
                        and (row.sampler, row.steps) == (sampler, nfe)
                        and (row.guidance or UNGUIDED) == (setting.guidance or UNGUIDED)
                        and row.is_of(method)
                    ]
                    yield _beside(key, setting, label, nfe, cell, unit, matching)


def _beside(
    key: str,
    setting: Setting,
    label: str,
    nfe: int,
    cell: Replicates,
    unit: float,
    matching: Sequence[PublishedRow],
) -> Compared:
    seeds = next((row for row in matching if row.table == SEEDS), None)
    single = [row for row in matching if row.table != SEEDS]
    main = min(single, key=lambda row: row.table in _ABLATIONS, default=None)
    spread = cell.known.error if cell.known else cell.spread
    ours = Estimate(unit * cell.estimate.mean, unit * spread)
    return Compared(key, setting, label, nfe, ours, main, seeds)


def printed(compared: Sequence[Compared], key: str) -> dict[Setting, dict[str, dict[int, float]]]:
    """Return the paper's numbers of a measure, in our unit, for tables."""
    found: dict[Setting, dict[str, dict[int, float]]] = {}
    for one in compared:
        row = one.paper or one.seeds
        if one.key == key and row and row.value is not None:
            values = found.setdefault(one.setting, {}).setdefault(one.method, {})
            values[one.nfe] = row.value / _MEASURES[key][1]
    return found


def section(study: Study, compared: Sequence[Compared]) -> Section:
    """Return the section of the page; empty where nothing is in the paper."""
    judged = [one for one in compared if one.agrees is not None]
    agreeing = sum(bool(one.agrees) for one in judged)
    told = (
        f"{agreeing} of {len(judged)} whose spread it gives agree"
        if judged
        else "for none of them does it give a spread over seeds"
    )
    blocks: tuple[PageBlock, ...] = ()
    if compared:
        blocks = (_introduction(study, compared), _table(study, compared))
    finding = f"{len(compared)} of our numbers are also in the paper: {told}."
    return Section("published", "Beside the paper's results", blocks, finding)


def _introduction(study: Study, compared: Sequence[Compared]) -> str:
    said = ""
    if paper := study.param("report.paper"):
        most = max(one.nfe for one in compared)
        gaps = [
            f"{one.difference:+.2f} with {one.method}"
            for one in compared
            if one.nfe == most and one.difference is not None
        ]
        said = (
            f"The paper's numbers are of the network of {paper}, on the same data: they place this "
            f"network, and are no target. At nfe {most}, where covariances matter least, bits per "
            f"dimension differ by {listed(gaps)}. "
        )
    said += (
        "The paper's numbers as printed, beside ours ± the standard deviation over seeds (NLL: the "
        f"standard error over images). Ours agrees if it is within {NOISE:g} of the paper's "
        "standard deviations over seeds, and rounding, of a number that it prints."
    )
    if study.quality and study.quality.key != "fid":
        space = study.space_name(study.quality)
        said += f" Its FID and recall need Inception's features; ours are of {space}."
    return said


def _table(study: Study, compared: Sequence[Compared]) -> DataTable:
    rows: list[tuple[Value, ...]] = [
        (
            study.registry[one.key].name,
            *(study.place(one.setting), one.method, one.nfe),
            *(one.ours.mean, one.ours.error),
            one.paper.value if one.paper else None,
            *((one.seeds.value, one.seeds.deviation) if one.seeds else (None, None)),
            one.difference,
            {None: "", True: "✓ agrees", False: "✗ differs"}[one.agrees],
        )
        for one in compared
    ]
    columns = (
        *("measure", "setting", "method", "nfe", "ours", "±"),
        *("paper", "paper, over seeds", "± paper", "difference", "agreement"),
    )
    return DataTable("published", columns, tuple(rows))
