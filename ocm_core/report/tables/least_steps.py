"""The least steps with which each method gets as good as a target."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import isfinite

from ocm_core.report.page.document import Table, Value
from ocm_core.report.statistics.image_results import Cell, Evidence
from ocm_core.report.statistics.method_comparison import FIXED_VARIANCES
from ocm_core.report.tables.published_results import Row
from ocm_core.text import listed

PUBLISHED_TARGET = 6.0  # the FID of the paper's table


def targets(evidence: Evidence) -> dict[float, str]:
    """The paper's, where distances compare, and the best that a fixed variance gets at any K."""
    found = {PUBLISHED_TARGET: "as in the paper"} if evidence.comparable else {}
    fixed = best_fixed(evidence.cells("fid"))
    return found | ({fixed.mean: "the best of the fixed variances at any K"} if fixed else {})


def best_fixed(cells: Sequence[Cell]) -> Cell | None:
    finite = [cell for cell in cells if cell.method in FIXED_VARIANCES and isfinite(cell.mean)]
    return min(finite, key=lambda cell: cell.mean, default=None)


def first_cell(cells: Sequence[Cell], methods: Collection[str], distance: float) -> Cell | None:
    """The one with fewest steps that gets there, whatever its sampler and guidance."""
    near = [cell for cell in cells if cell.method in methods and cell.mean <= distance]
    return min(near, key=lambda cell: (cell.steps, cell.mean), default=None)


def introduction(evidence: Evidence) -> str:
    said = [f"{distance:.3g} ({what})" for distance, what in targets(evidence).items()]
    return (
        f"The least K at which a method gets to a {evidence.distance} of at most {listed(said)}, "
        f"by whichever sampler{' and guidance' if evidence.guided else ''} does so first, among "
        f"the K that were sampled. {evidence.small_print}"
    )


def least_steps(evidence: Evidence, published: Sequence[Row] = ()) -> Table:
    cells = evidence.cells("fid")
    distances = [*targets(evidence)]
    labels = list(dict.fromkeys(cell.method for cell in cells))
    paper = _paper(published) if evidence.comparable else {}
    rows = [
        (
            " or ".join(methods),
            *(value for d in distances for value in _found(evidence, cells, methods, d)),
            *[paper.get(name)] * bool(paper),
        )
        for methods, name in _rivals(labels, together=bool(paper))
    ]
    names = [f"{evidence.distance} ≤ {distance:.3g}" for distance in distances]
    columns = [text for name in names for text in (f"K for {name}", f"{name} by")]
    columns += [f"paper: K for FID ≤ {PUBLISHED_TARGET:g}"] * bool(paper)
    return Table("least_steps", ("method", *columns), tuple(rows))


def _rivals(labels: Sequence[str], *, together: bool) -> Iterator[tuple[list[str], str]]:
    """Methods with their names in the paper, which takes the better of the two fixed variances."""
    pair = [label for label in ("beta", "beta_tilde") if label in labels]
    if together and pair:
        yield pair, "ddpm"
    for label in labels:
        if not (together and label in pair):
            yield [label], {"delta": "ddim"}.get(label, label)


def _found(
    evidence: Evidence, cells: Sequence[Cell], methods: Sequence[str], distance: float
) -> tuple[Value, Value]:
    cell = first_cell(cells, methods, distance)
    if cell is None:
        return f"more than {max(c.steps for c in cells if c.method in methods)}", None
    return cell.steps, f"{evidence.place(cell.sampler, cell.guidance)} ({cell.mean:.3g})"


def _paper(published: Sequence[Row]) -> dict[str, Value]:
    """The printed number of steps, or what is printed instead."""
    rows = (row for row in published if row.metric == f"min_steps_fid{PUBLISHED_TARGET:g}")
    return {r.method: r.note if r.value is None else int(r.value) for r in rows}
