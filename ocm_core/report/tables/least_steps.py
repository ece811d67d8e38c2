"""The fewest steps with which each method reaches a target distance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ocm_core.report.page.document import DataTable, Value
from ocm_core.report.statistics.head_families import relative_heads
from ocm_core.report.statistics.image_results import CellMean, ImageResults, best_fixed, first_cell
from ocm_core.report.tables.published_results import PublishedRow
from ocm_core.text import listed

PUBLISHED_TARGET = 6.0  # the FID of the paper's table


def targets(results: ImageResults) -> dict[float, str]:
    """The paper's, where distances compare with it, and the best that a fixed variance gets."""
    found = {PUBLISHED_TARGET: "as in the paper"} if results.comparable else {}
    fixed = best_fixed(results.cells("fid"))
    return found | ({fixed.mean: "the best of the fixed variances at any K"} if fixed else {})


def introduction(results: ImageResults) -> str:
    said = [f"{distance:.3g} ({what})" for distance, what in targets(results).items()]
    return (
        f"The least K at which a method gets to a {results.distance} of at most {listed(said)}, "
        f"by whichever sampler{' and guidance' if results.guided else ''} does so first, among "
        f"the K that were sampled. {results.small_print}"
    )


def table(results: ImageResults, published: Sequence[PublishedRow] = ()) -> DataTable:
    cells = results.cells("fid")
    distances = [*targets(results)]
    labels = list(dict.fromkeys(cell.method for cell in cells))
    paper = _paper(published) if results.comparable else {}
    relative = relative_heads(results.families)
    rows = [
        (
            " or ".join(methods),
            *(value for d in distances for value in _found(results, cells, methods, d)),
            *[None if relative & {*methods} else paper.get(name)] * bool(paper),
        )
        for methods, name in _rivals(labels, together=bool(paper))
    ]
    names = [f"{results.distance} ≤ {distance:.3g}" for distance in distances]
    columns = [text for name in names for text in (f"K for {name}", f"{name} by")]
    columns += [f"paper: K for FID ≤ {PUBLISHED_TARGET:g}"] * bool(paper)
    return DataTable("least_steps", ("method", *columns), tuple(rows))


def _rivals(labels: Sequence[str], *, together: bool) -> Iterator[tuple[list[str], str]]:
    """Methods with their names in the paper, which takes the better of the two fixed variances."""
    pair = [label for label in ("beta", "beta_tilde") if label in labels]
    if together and pair:
        yield pair, "ddpm"
    for label in labels:
        if not (together and label in pair):
            yield [label], {"delta": "ddim"}.get(label, label)


def _found(
    results: ImageResults, cells: Sequence[CellMean], methods: Sequence[str], distance: float
) -> tuple[Value, Value]:
    cell = first_cell(cells, methods, distance)
    if cell is None:
        most = max(c.steps for c in cells if c.method in methods)
        cut_short = most < max(c.steps for c in cells)
        return f"not by {most}" + ", and not sampled beyond" * cut_short, None
    return cell.steps, f"{results.place(cell.sampler, cell.guidance)} ({cell.mean:.3g})"


def _paper(published: Sequence[PublishedRow]) -> dict[str, Value]:
    """The printed number of steps, or what is printed instead."""
    rows = (row for row in published if row.metric == f"min_steps_fid{PUBLISHED_TARGET:g}")
    return {r.method: r.note if r.value is None else int(r.value) for r in rows}
