"""Results beside the paper's, cell by cell, and whether they agree.

`reports/paper/results.csv` has every number of the paper's tables as printed. Agreement is judged
by the paper's own spread over seeds, which it gives for a few cells.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading
from ocm_core.project import located
from ocm_core.report.document import DataTable, Section
from ocm_core.results.replicates import NOISE, Estimate
from ocm_core.results.study import Method, Setting, Study
from ocm_core.results.table import REMEDY, UNGUIDED, Value
from ocm_core.text import listed

FILE = Path("reports/paper/results.csv")
SEEDS = "seeds"  # the table of means and spreads over seeds
_ABLATIONS = ("rademacher", "probes")  # tables that repeat numbers of the main ones
_COLUMNS = (
    *("table", "experiment", "sampler", "method", "steps", "cfg"),
    *("probes", "metric", "value", "std", "note"),
)
# The paper's name and unit of the measures that compare; recall needs Inception's features.
_UNITS = {"bits_per_dim": ("nll_bpd", 1.0), "fid": ("fid", 1.0), "recall": ("recall_percent", 100)}


class PublishedRow(NamedTuple):
    """One printed number of a measure that compares."""

    table: str
    place: tuple[str, str, float, int]  # metric, sampler, guidance and steps
    method: str
    probes: int | None
    value: float
    rounding: float  # half a unit of the last printed digit
    deviation: float | None  # over the paper's seeds

    def is_of(self, method: Method) -> bool:
        """Tell whether it is about a method: of its kind, with as many probes (one, if unsaid)."""
        probes = method.options.get("probes", 1)
        if method.is_relative:  # the paper has no such heads
            return False
        if self.probes is None:
            return self.method == method.label == method.kind and probes == 1
        return (self.method, self.probes) == (method.kind, probes)


class Compared(NamedTuple):
    """One cell of ours; the paper prints some twice: in a table of results, and over seeds."""

    key: str
    setting: Setting
    method: str
    nfe: int
    ours: Estimate  # in the paper's unit, ± over seeds or images
    paper: PublishedRow | None
    seeds: PublishedRow | None

    @property
    def known(self) -> list[PublishedRow]:
        """Return what the paper prints; that of a table of results first."""
        return [row for row in (self.paper, self.seeds) if row]

    @property
    def difference(self) -> float:
        """Return ours less the paper's, with two digits."""
        return float(f"{self.ours.mean - self.known[0].value:.2g}")

    @property
    def agrees(self) -> bool | None:
        """Tell whether ours is within the paper's spread; None where it gives none."""
        if not self.seeds or self.seeds.deviation is None:
            return None
        reach = NOISE * self.seeds.deviation
        return any(abs(self.ours.mean - row.value) <= reach + row.rounding for row in self.known)


def published(study: Study, file: Path = FILE) -> list[PublishedRow]:
    """Return the paper's rows about this experiment, or the likelihoods of `report.paper`."""
    file, paper = located(file), study.param("report.paper")
    if not file.exists():
        return []
    experiment = paper or study.param("name", "")
    metrics = [metric for metric, _ in _UNITS.values()]
    with reading(file, "the paper's results", REMEDY), file.open(newline="", encoding="utf-8") as f:
        lines = csv.DictReader(f)
        if tuple(lines.fieldnames or ()) != _COLUMNS:
            has, wanted = ", ".join(lines.fieldnames or ()), ", ".join(_COLUMNS)
            raise OcmError(f"{file}: has the columns {has}, expected {wanted}; {REMEDY}")
        rows = [
            PublishedRow(
                n["table"],
                (n["metric"], n["sampler"], float(n["cfg"] or UNGUIDED), int(n["steps"])),
                n["method"],
                int(n["probes"]) if n["probes"] else None,
                value=float(n["value"]),
                rounding=0.5 * 10.0 ** -len(n["value"].partition(".")[2]),
                deviation=float(n["std"]) if n["std"] else None,
            )
            for n in lines
            if n["experiment"] == experiment and n["metric"] in metrics
        ]
    if paper and not rows:
        raise OcmError(f"report.paper: {file} has no experiment {paper!r}")
    return [r for r in rows if not paper or (r.place[0] == "nll_bpd" and r.table != SEEDS)]


def compare(study: Study, rows: Sequence[PublishedRow]) -> list[Compared]:
    """Return our cells that the paper has numbers for."""
    found = []
    for key, (metric, unit) in _UNITS.items():
        grid = study.grids.get(key, {}) if key != "recall" or "fid" in study.grids else {}
        first = next(iter(grid)).timesteps if grid else ""
        for setting, columns in grid.items():
            sampler = setting.sampler or ("ddpm" if setting.timesteps == first else "")
            for nfe, at in columns.items():
                place = metric, sampler, setting.guidance or UNGUIDED, nfe
                theirs = [row for row in rows if row.place == place]
                for label, cell in at.entries.items():
                    matching = [row for row in theirs if row.is_of(study.methods[label])]
                    seeds = next((row for row in matching if row.table == SEEDS), None)
                    single = [row for row in matching if row.table != SEEDS]
                    paper = min(single, key=lambda row: row.table in _ABLATIONS, default=None)
                    if matching:
                        spread = cell.known.error if cell.known else cell.spread
                        ours = Estimate(unit * cell.estimate.mean, unit * spread)
                        found.append(Compared(key, setting, label, nfe, ours, paper, seeds))
    return found


def printed(compared: Sequence[Compared], key: str) -> dict[Setting, dict[str, dict[int, float]]]:
    """Return the paper's numbers of a measure, in our unit, for tables."""
    found: dict[Setting, dict[str, dict[int, float]]] = {}
    for one in compared:
        if one.key == key:
            values = found.setdefault(one.setting, {}).setdefault(one.method, {})
            values[one.nfe] = one.known[0].value / _UNITS[key][1]
    return found


def section(study: Study, compared: Sequence[Compared]) -> Section:
    """Return the section of the page; empty where nothing is in the paper."""
    judged = [one.agrees for one in compared if one.agrees is not None]
    told = "for none of them does it give a spread over seeds"
    if judged:
        told = f"{sum(judged)} of {len(judged)} whose spread it gives agree"
    columns = (
        *("measure", "setting", "method", "nfe", "ours", "±"),
        *("paper", "paper, over seeds", "± paper", "difference", "agreement"),
    )
    rows: list[tuple[Value, ...]] = [
        (
            *(study.registry[one.key].name, study.place(one.setting), one.method, one.nfe),
            *(one.ours.mean, one.ours.error, one.paper.value if one.paper else None),
            *((one.seeds.value, one.seeds.deviation) if one.seeds else (None, None)),
            one.difference,
            {None: "", True: "✓ agrees", False: "✗ differs"}[one.agrees],
        )
        for one in compared
    ]
    finding = f"{len(compared)} of our numbers are also in the paper: {told}."
    table = DataTable("published", columns, tuple(rows))
    blocks = (_introduction(study, compared), table) if compared else ()
    return Section("published", "Beside the paper's results", blocks, finding)


def _introduction(study: Study, compared: Sequence[Compared]) -> str:
    said = ""
    if paper := study.param("report.paper"):
        most = max(one.nfe for one in compared)
        gaps = [f"{one.difference:+.2f} with {one.method}" for one in compared if one.nfe == most]
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
