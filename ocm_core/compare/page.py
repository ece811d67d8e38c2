"""A comparison as a page of its own: a section per experiment, one file that opens offline."""

from __future__ import annotations

from ocm_core.compare.changes import Changes, Comparison
from ocm_core.compare.text import COLUMNS, change, noteworthy, old_numbers, split_key, tally, value
from ocm_core.report.page.document import DataTable, Page, PageBlock, Section
from ocm_core.text import plural

_RULE = (
    "A change is beyond noise where it exceeds two of its standard errors, √(s₁²/n₁ + s₂²/n₂) for "
    "standard deviations s over n seeds. Where no spread was recorded, nothing is said about "
    "noise. Of each metric the largest changes come first, relative to its numbers."
)


def page(comparison: Comparison, everything: bool) -> Page:
    found = [one for one in comparison.experiments if everything or one.differ]
    rest = [one for one in comparison.experiments if one not in found]
    return Page(
        title=f"{comparison.before} → {comparison.after}",
        subtitle="Which numbers and which parameters differ, experiment by experiment.",
        summary=(
            *(f"{one.name}: {tally(one)}." for one in found),
            *(f"{line}." for line in old_numbers(rest)),
            _RULE,
        ),
        sections=tuple(_section(one, everything) for one in found),
    )


def _section(changes: Changes, everything: bool) -> Section:
    blocks: list[PageBlock] = []
    if changes.parameters:
        rows = [(p.key, value(p.before), value(p.after)) for p in changes.parameters]
        columns = ("parameter", "before", "after")
        blocks.append(DataTable(f"{changes.name}-params", columns, tuple(rows)))
    numbers = changes.numbers if everything else noteworthy(changes)
    if numbers:
        cells = [
            (*split_key(n.key), n.before, n.after, change(n), n.verdict.words) for n in numbers
        ]
        blocks.append(DataTable(f"{changes.name}-metrics", COLUMNS, tuple(cells)))
    left_out = len(changes.numbers) - len(numbers)
    if left_out:
        blocks.append(f"{plural(left_out, 'further number')} left out; --all shows everything.")
    return Section(changes.name, changes.name, tuple(blocks))
