"""The summary of an image experiment: three sentences, each made of the numbers below it."""

from __future__ import annotations

from collections.abc import Sequence

from ocm_core.report.claims.toy_summary import headline_steps
from ocm_core.report.page.verdicts import Claim, tally
from ocm_core.report.statistics.image_results import Cell, Evidence
from ocm_core.report.statistics.method_comparison import Contest
from ocm_core.report.tables.least_steps import best_fixed, first_cell
from ocm_core.text import listed


def sentences(evidence: Evidence, claims: Sequence[Claim]) -> tuple[str, ...]:
    found = [
        _best_distance(evidence) if evidence.has("fid") else None,
        _bound(evidence) if evidence.has("nll") else _steps_saved(evidence),
        tally(claims) if claims else None,
    ]
    return tuple(sentence for sentence in found if sentence)


def _best_distance(evidence: Evidence) -> str:
    values = evidence.results["fid"].dropna("steps", how="all")
    parts = []
    for k in headline_steps(values["steps"].values.tolist()):
        winners = []
        for sampler in values["sampler"].values:
            here = values.sel(steps=k, sampler=sampler)
            means = evidence.mean("fid").sel(steps=k, sampler=sampler)
            if bool(means.notnull().any()):
                scale = float(means.min("method").idxmin("guidance"))
                contest = Contest.of_seeds(
                    evidence.place(str(sampler), scale), here.sel(guidance=scale)
                )
                winners.append(f"{contest.leader()} with {contest.where}")
        parts.append(f"at K = {k} by {listed(winners)}")
    return (
        f"In the features of {evidence.space_name}, with {evidence.count} samples, the lowest "
        f"{evidence.distance} is reached {'; '.join(parts)}."
    )


def _bound(evidence: Evidence) -> str:
    means, errors = evidence.mean("nll"), evidence.error("nll")
    steps = [int(k) for k in means.dropna("steps", how="all")["steps"].values]
    told = dict.fromkeys([*headline_steps(steps), max(steps)])
    leaders = []
    for k in told:
        contest = Contest.of_errors(f"K = {k}", means.sel(steps=k), errors.sel(steps=k))
        leaders.append(f"{contest.leader()} at {contest.where}")
    return f"The lowest NLL, in bits per dimension, is that of {listed(leaders)}."


def _steps_saved(evidence: Evidence) -> str | None:
    """How soon `ocm` gets to where the best fixed variance ends."""
    cells = evidence.cells("fid") if evidence.has("fid") else []
    fixed = best_fixed(cells)
    ours = [cell.steps for cell in cells if cell.method == "ocm"]
    if fixed is None or not ours:
        return None
    reached = first_cell(cells, ["ocm"], fixed.mean)
    end = (
        f"ocm gets there with K = {reached.steps} ({_place(evidence, reached)})"
        if reached
        else f"ocm does not get there with up to K = {max(ours)}"
    )
    return (
        f"The best fixed variance is {fixed.method} with K = {fixed.steps} "
        f"({_place(evidence, fixed)}); {end}."
    )


def _place(evidence: Evidence, cell: Cell) -> str:
    return f"{evidence.place(cell.sampler, cell.guidance)}, {cell.mean:.3g}"
