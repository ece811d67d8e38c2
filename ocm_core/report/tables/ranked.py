"""Rows of a table of results, ranked column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ocm_core.report.page.result_table import Mark, Result, ResultGroup, ResultRow
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.ranking import places

MARKS = "Best in bold, second best underlined, ≈ what is within noise of the best."
RULE = f"{MARKS} ± one standard error."
_RANKS: tuple[Mark, ...] = ("best", "second")
PublishedMeans = Mapping[str, Mapping[int, float]]  # by label and column


def ranked_group(
    title: str,
    columns: Sequence[MethodComparison],
    *,
    higher: bool = False,
    notes: Mapping[tuple[str, int], str] | None = None,
    published: PublishedMeans | None = None,
) -> ResultGroup:
    """A row for each label of any column; the paper's own numbers under the row they are about."""
    ranked = [places(column, higher=higher) for column in columns]
    rows: list[ResultRow] = []
    for label in dict.fromkeys(label for column in columns for label in column.means):
        cells = []
        for i, (column, place) in enumerate(zip(columns, ranked, strict=True)):
            at = place.get(label)
            cells.append(
                Result(
                    mean=column.means.get(label),
                    error=column.errors.get(label),
                    rank=_RANKS[at.order] if at and at.order < len(_RANKS) else "",
                    tied=at is not None and at.tied,
                    note=(notes or {}).get((label, i), ""),
                )
            )
        rows.append(ResultRow(label, tuple(cells)))
        printed = (published or {}).get(label, {})
        if printed:
            theirs = tuple(Result(printed.get(i)) for i in range(len(columns)))
            rows.append(ResultRow(f"{label} in the paper", theirs, published=True))
    return ResultGroup(title, tuple(rows))
