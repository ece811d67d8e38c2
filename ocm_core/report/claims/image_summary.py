"""The summary at the top of an image experiment's page: sentences computed from its results."""

from __future__ import annotations

from collections.abc import Sequence

from ocm_core.report.page.verdicts import Claim, tally
from ocm_core.report.statistics.image_results import CellMean, ImageResults, best_fixed, first_cell
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.selections import headline_steps
from ocm_core.text import listed


def sentences(results: ImageResults, claims: Sequence[Claim]) -> tuple[str, ...]:
    found = [
        _best_distance(results) if results.has("fid") else None,
        _bound(results) if results.has("nll") else _steps_saved(results),
        tally(claims) if claims else None,
    ]
    return tuple(sentence for sentence in found if sentence)


def _best_distance(results: ImageResults) -> str:
    values = results.dataset["fid"].dropna("steps", how="all")
    parts = []
    for k in headline_steps(values["steps"].values.tolist()):
        winners = []
        for sampler in values["sampler"].values:
            here = values.sel(steps=k, sampler=sampler)
            means = results.mean("fid").sel(steps=k, sampler=sampler)
            if bool(means.notnull().any()):
                scale = float(means.min("method").idxmin("guidance"))
                comparison = MethodComparison.of_seeds(
                    results.place(str(sampler), scale), here.sel(guidance=scale)
                )
                winners.append(f"{comparison.leader()} with {comparison.where}")
        parts.append(f"at K = {k} by {listed(winners)}")
    return (
        f"In the features of {results.space_name}, with {results.count} samples, the lowest "
        f"{results.distance} is reached {'; '.join(parts)}."
    )


def _bound(results: ImageResults) -> str:
    means, errors = results.mean("nll"), results.error("nll")
    steps = [int(k) for k in means.dropna("steps", how="all")["steps"].values]
    told = dict.fromkeys([*headline_steps(steps), max(steps)])
    leaders = []
    for k in told:
        comparison = MethodComparison.of_errors(f"K = {k}", means.sel(steps=k), errors.sel(steps=k))
        leaders.append(f"{comparison.leader()} at {comparison.where}")
    return f"The lowest NLL, in bits per dimension, is that of {listed(leaders)}."


def _steps_saved(results: ImageResults) -> str | None:
    """How soon OCM gets to where the best fixed variance ends."""
    cells = results.cells("fid") if results.has("fid") else []
    fixed = best_fixed(cells)
    ocm = results.heads("fid").label("ocm")
    ours = [cell.steps for cell in cells if cell.method == ocm]
    if fixed is None or not ours:
        return None
    reached = first_cell(cells, [ocm], fixed.mean)
    end = (
        f"{ocm} gets there with K = {reached.steps} ({_place(results, reached)})"
        if reached
        else f"{ocm} does not get there with up to K = {max(ours)}"
    )
    return (
        f"The best fixed variance is {fixed.method} with K = {fixed.steps} "
        f"({_place(results, fixed)}); {end}."
    )


def _place(results: ImageResults, cell: CellMean) -> str:
    return f"{results.place(cell.sampler, cell.guidance)}, {cell.mean:.3g}"
