"""The summary at the top of a toy's page: sentences computed from its results."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from ocm_core.report.page.verdicts import Claim, tally
from ocm_core.report.statistics.head_families import HeadFamilies, claimed_family
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.selections import headline_steps, methods_with_values
from ocm_core.text import listed


def sentences(
    results: xr.Dataset, families: HeadFamilies, claims: Sequence[Claim]
) -> tuple[str, ...]:
    found = []
    if "mmd" in results:
        score = str(results["score"].values[-1])
        values = results["mmd"].sel(score=score)
        steps = headline_steps(results["steps"].values.tolist())
        found.append(_best(values, steps, score))
        ocm = claimed_family(families, methods_with_values(values)).label("ocm")
        found.append(_above_floor(values, steps, float(results["mmd_floor"].mean()), ocm))
    if claims:
        found.append(tally(claims))
    return tuple(found)


def _best(values: xr.DataArray, steps: Sequence[int], score: str) -> str:
    parts = []
    for k in steps:
        comparisons = [
            MethodComparison.of_seeds(str(sampler).upper(), values.sel(sampler=sampler, steps=k))
            for sampler in values["sampler"].values
        ]
        winners = [f"{comparison.leader()} with {comparison.where}" for comparison in comparisons]
        parts.append(f"at K = {k} by {listed(winners)}")
    return f"With the {score} score, the lowest MMD is reached {'; '.join(parts)}."


def _above_floor(values: xr.DataArray, steps: Sequence[int], floor: float, ocm: str) -> str:
    """How far OCM is from what a perfect sampler would get."""
    start = f"A perfect sampler would have an MMD of {floor:.3g}"
    if ocm not in values["method"]:
        return f"{start}."
    ratio = values.sel({"method": ocm}).mean("seed", skipna=False) / floor
    parts = []
    for sampler in ratio["sampler"].values:
        ratios = [f"{float(ratio.sel(sampler=sampler, steps=k)):.2g}" for k in steps]
        parts.append(f"{listed(ratios)} times that with {str(sampler).upper()}")
    at = listed([f"K = {k}" for k in steps])
    return f"{start}; at {at}, {ocm} has {listed(parts)}."
