"""Our results beside the paper's, cell by cell, and whether they agree.

Agreement is judged by the paper's own spread over seeds, which it gives for a few cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocm_core.report.page.document import DataTable, Value
from ocm_core.report.statistics.estimates import NOISE
from ocm_core.report.statistics.head_families import relative_heads
from ocm_core.report.statistics.image_results import CellMean, ImageResults
from ocm_core.report.statistics.selections import UNGUIDED
from ocm_core.report.tables.published_results import SEEDS, PublishedRow
from ocm_core.text import listed

if TYPE_CHECKING:
    from ocm_core.schema.experiment import MethodParams

AGREES, DIFFERS = "✓ agrees", "✗ differs"
_ABLATIONS = ("rademacher", "probes")  # tables that repeat figures of the main ones


@dataclass(frozen=True)
class Compared:
    """One cell of ours. The paper prints some twice: in a table of results, and over seeds."""

    measure: str
    cell: CellMean
    paper: PublishedRow | None
    seeds: PublishedRow | None

    @property
    def difference(self) -> float | None:
        row = self.paper or self.seeds
        if row is None or row.value is None:
            return None
        return float(f"{self.cell.mean - row.value:.2g}")

    @property
    def agrees(self) -> bool | None:
        """Within the paper's spread over seeds of either number; None where it gives none."""
        if self.seeds is None or self.seeds.deviation is None:
            return None
        reach = NOISE * self.seeds.deviation
        return any(
            abs(self.cell.mean - row.value) <= reach + row.rounding
            for row in (self.paper, self.seeds)
            if row is not None and row.value is not None
        )


def compare(
    results: ImageResults, methods: Mapping[str, MethodParams], published: Sequence[PublishedRow]
) -> list[Compared]:
    """All our cells of the measures that compare; the paper has no heads that are relative."""
    found = []
    relative = relative_heads(results.families)
    for measure, metric, cells in _measured(results):
        for cell in cells:
            matching = [
                row
                for row in published
                if row.metric == metric
                and cell.method not in relative
                and (row.sampler, row.steps) == (cell.sampler, cell.steps)
                and (row.guidance or UNGUIDED) == cell.guidance
                and row.is_of(cell.method, methods[cell.method])
            ]
            seeds = next((row for row in matching if row.table == SEEDS), None)
            single = [row for row in matching if row.table != SEEDS]
            first = min(single, key=lambda row: row.table in _ABLATIONS, default=None)
            found.append(Compared(measure, cell, first, seeds))
    return found


def _measured(results: ImageResults) -> Iterator[tuple[str, str, list[CellMean]]]:
    """Name, name in the paper's tables, and cells in the paper's units."""
    if results.has("nll"):
        yield "NLL, bits/dim", "nll_bpd", results.likelihood_cells()
    if results.comparable and results.has("fid"):
        yield "FID", "fid", results.cells("fid")
    if results.comparable and results.has("recall"):
        yield "recall, %", "recall_percent", [c.scaled(100.0) for c in results.cells("recall")]


def finding(compared: Sequence[Compared]) -> str:
    """How many of our numbers agree, in a sentence."""
    beside = [one for one in compared if one.paper or one.seeds]
    judged = [one for one in compared if one.agrees is not None]
    agreeing = sum(bool(one.agrees) for one in judged)
    told = (
        f"{agreeing} of {len(judged)} whose spread it gives agree"
        if judged
        else ("for none of them does it give a spread over seeds")
    )
    return f"{len(beside)} of our numbers are also in the paper: {told}."


def of_another_network(paper: str, compared: Sequence[Compared]) -> str:
    """How far the networks are apart: at the most steps a covariance matters least."""
    known = [one for one in compared if one.paper and one.difference is not None]
    most = max(one.cell.steps for one in known)
    gaps = {one.cell.method: one.difference for one in known if one.cell.steps == most}
    told = listed([f"{gap:+.2f} with {method}" for method, gap in gaps.items()])
    return (
        f"The paper's figures are of the network of {paper}, on the same data: they place this "
        f"network, and are no target. At K = {most}, where covariances matter least, its bits per "
        f"dimension are apart from the paper's by {told}."
    )


def introduction(results: ImageResults, compared: Sequence[Compared]) -> str:
    judged = [one for one in compared if one.agrees is not None]
    said = (
        "The paper's figures as printed, beside ours ± the standard deviation over seeds (NLL: the "
        "standard error over images). "
    )
    if judged:
        said += (
            "For some it gives a spread over seeds: there, ours agrees if it is within "
            f"{NOISE:g} of their standard deviations, and rounding, of a number that it prints. "
            f"{sum(bool(one.agrees) for one in judged)} of {len(judged)} do."
        )
    else:
        said += "It gives no spread over seeds for these, so none is marked."
    if results.measures and not results.comparable:
        said += (
            " Its FID and recall are of Inception's features and stand beside nothing here: these "
            f"samples were judged by the features of {results.space_name}."
        )
    return said


def table(results: ImageResults, compared: Sequence[Compared]) -> DataTable:
    guided = results.guided
    rows: list[tuple[Value, ...]] = [
        (
            *(one.measure, one.cell.sampler, one.cell.method, one.cell.steps),
            *[one.cell.guidance] * guided,
            *(one.cell.mean, one.cell.deviation),
            one.paper.value if one.paper else None,
            *((one.seeds.value, one.seeds.deviation) if one.seeds else (None, None)),
            one.difference,
            {None: "", True: AGREES, False: DIFFERS}[one.agrees],
        )
        for one in compared
    ]
    columns = (
        *("measure", "sampler", "method", "steps"),
        *["guidance"] * guided,
        *("ours", "±", "paper", "paper, over seeds", "± paper", "difference", "agreement"),
    )
    return DataTable("published", columns, tuple(rows))
