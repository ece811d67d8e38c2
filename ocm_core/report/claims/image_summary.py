"""What was found in an image experiment: a sentence for each section, computed from its results."""

from __future__ import annotations

import xarray as xr

from ocm_core.report.statistics.image_results import CellMean, ImageResults, best_fixed, first_cell
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.selections import headline_steps
from ocm_core.text import listed


def best_distance(results: ImageResults) -> str:
    """By covariance method, where a sampler has several."""
    values = results.dataset["fid"].dropna("steps", how="all")
    several = values.notnull().any(("steps", "guidance", "seed")).sum("method") > 1
    if bool(several.any()):
        values = values.sel(sampler=several).dropna("steps", how="all")
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
        f"Among covariances, in the features of {results.space_name} and with {results.count} "
        f"samples, the lowest {results.distance} is reached {'; '.join(parts)}."
    )


def lowest_bound(means: xr.DataArray, errors: xr.DataArray) -> str:
    """Of the bound on the first chain, over (method, steps)."""
    steps = [int(k) for k in means.dropna("steps", how="all")["steps"].values]
    told = dict.fromkeys([*headline_steps(steps), max(steps)])
    leaders = []
    for k in told:
        comparison = MethodComparison.of_errors(f"K = {k}", means.sel(steps=k), errors.sel(steps=k))
        leaders.append(f"{comparison.leader()} at {comparison.where}")
    return f"The lowest NLL, in bits per dimension, is that of {listed(leaders)}."


def steps_saved(results: ImageResults) -> str | None:
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
