"""The cost of a covariance: parameters and time of one network evaluation, with it and without."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ocm_core.report.page.document import DataTable, Value
from ocm_core.report.statistics.head_families import (
    HeadFamilies,
    families_together,
    relative_heads,
)
from ocm_core.report.tables.published_results import PublishedRow
from ocm_core.text import listed

SCORE = "score"  # the network alone


@dataclass(frozen=True)
class Cost:
    """As the stage `evaluate_cost` measured it."""

    setting: str  # where it was measured: "batches of 64 on one CPU core"
    network_parameters: int
    milliseconds: Mapping[str, float]  # of one evaluation: of the network alone, with each method
    ratios: Mapping[str, tuple[float, float]]  # to the network alone, and its standard error

    @classmethod
    def parse(cls, text: str) -> Cost:
        """From the file of the stage, where the network alone has a ratio of one, too."""
        found = json.loads(text)
        ratios = {k: (ratio, error) for k, (ratio, error) in found["ratios"].items() if k != SCORE}
        return cls(found["setting"], found["network_parameters"], found["milliseconds"], ratios)

    @property
    def finding(self) -> str:
        """What OCM's head and the dearest method add, in a sentence."""
        dearest = max(self.ratios, key=lambda label: self.ratios[label][0])
        told = [
            f"{ratio:.3g} ± {float(f'{error:.1g}'):g} times as long with {label}"
            for label in dict.fromkeys((*(m for m in ("ocm",) if m in self.ratios), dearest))
            for ratio, error in [self.ratios[label]]
        ]
        return (
            f"An evaluation of the network alone takes {self.milliseconds[SCORE]:.3g} ms, and "
            f"{listed(told)} ({self.setting})."
        )


def introduction(cost: Cost, published: Sequence[PublishedRow]) -> str:
    said = (
        "One evaluation of the score network alone, and with what each method adds to it "
        f"({cost.setting}). A ratio is the median over repeats, each against the network alone in "
        "the same repeat."
    )
    if _paper(published):
        said += " The paper's times are of batches of 64 on an A100: compare the ratios."
    return said


def table(
    cost: Cost,
    head_parameters: Mapping[str, int],
    published: Sequence[PublishedRow],
    families: HeadFamilies = (),
) -> DataTable:
    """The paper's row stands beside ours only where ours is not a relative head."""
    paper, relative = _paper(published), relative_heads(families)
    rows = []
    for label in families_together(cost.milliseconds, families):
        head = head_parameters.get(label, 0)
        row: tuple[Value, ...] = (
            "network alone" if label == SCORE else label,
            head,
            (cost.network_parameters + head) / 1e6,
            cost.milliseconds[label],
            *((1.0, None) if label == SCORE else cost.ratios[label]),
        )
        theirs = _theirs({} if label in relative else paper, label)
        rows.append(row + (theirs if paper else ()))
    columns: tuple[str, ...] = (
        "evaluation",
        "parameters of the head",
        "parameters in all, millions",
        "milliseconds",
        "ratio",
        "± its standard error",
    )
    if paper:
        columns += ("paper: parameters, millions", "paper: milliseconds", "paper: ratio")
    return DataTable("cost", columns, tuple(rows))


def _paper(published: Sequence[PublishedRow]) -> dict[tuple[str, str], float]:
    return {
        (row.method, row.metric): row.value
        for row in published
        if row.table == "cost" and row.value is not None
    }


def _theirs(paper: Mapping[tuple[str, str], float], label: str) -> tuple[Value, ...]:
    time = paper.get((label, "milliseconds_a100_batch64"))
    alone = paper.get((SCORE, "milliseconds_a100_batch64"))
    ratio = time / alone if time and alone else None
    return (paper.get((label, "parameters_million")), time, ratio)
