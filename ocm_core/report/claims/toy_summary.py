"""The summary of a toy experiment: three sentences, each made of the numbers below it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import xarray as xr

from ocm_core.report.page.verdicts import Claim, tally
from ocm_core.report.statistics.method_comparison import Contest
from ocm_core.text import listed

HEADLINE_STEPS = (5, 10)


def sentences(results: xr.Dataset, claims: Sequence[Claim]) -> tuple[str, ...]:
    found = []
    if "mmd" in results:
        score = str(results["score"].values[-1])
        values = results["mmd"].sel(score=score)
        steps = headline_steps(results["steps"].values.tolist())
        found.append(_best(values, steps, score))
        found.append(_above_floor(values, steps, float(results["mmd_floor"].mean())))
    if claims:
        found.append(tally(claims))
    return tuple(found)


def headline_steps(sampled: Collection[int]) -> list[int]:
    """The few-step chains that the page talks about: K = 5 and 10, or the shortest there is."""
    return [k for k in HEADLINE_STEPS if k in sampled] or [min(sampled)]


def _best(values: xr.DataArray, steps: Sequence[int], score: str) -> str:
    parts = []
    for k in steps:
        contests = [
            Contest.of_seeds(str(sampler).upper(), values.sel(sampler=sampler, steps=k))
            for sampler in values["sampler"].values
        ]
        winners = [f"{contest.leader()} with {contest.where}" for contest in contests]
        parts.append(f"at K = {k} by {listed(winners)}")
    return f"With the {score} score, the lowest MMD is reached {'; '.join(parts)}."


def _above_floor(values: xr.DataArray, steps: Sequence[int], floor: float) -> str:
    """How far `ocm` is from what a perfect sampler would get."""
    start = f"A perfect sampler would have an MMD of {floor:.3g}"
    if "ocm" not in values["method"]:
        return f"{start}."
    ocm = values.sel({"method": "ocm"}).mean("seed", skipna=False) / floor
    parts = []
    for sampler in ocm["sampler"].values:
        ratios = [f"{float(ocm.sel(sampler=sampler, steps=k)):.2g}" for k in steps]
        parts.append(f"{listed(ratios)} times that with {str(sampler).upper()}")
    at = listed([f"K = {k}" for k in steps])
    return f"{start}; at {at}, ocm has {listed(parts)}."
