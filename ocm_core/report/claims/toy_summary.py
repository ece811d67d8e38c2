"""What was found on a toy: a sentence for each section, computed from its results."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from ocm_core.report.statistics.head_families import HeadFamilies, claimed_family
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.selections import headline_steps, methods_with_values
from ocm_core.text import listed


def best_samples(results: xr.Dataset, families: HeadFamilies) -> str:
    """Which methods have the lowest MMD, and how far OCM is from a perfect sampler."""
    score = str(results["score"].values[-1])
    values = results["mmd"].sel(score=score)
    steps = headline_steps(results["steps"].values.tolist())
    ocm = claimed_family(families, methods_with_values(values)).label("ocm")
    floor = float(results["mmd_floor"].mean())
    return f"{_best(values, steps, score)} {_above_floor(values, steps, floor, ocm)}"


def best_covariance(results: xr.Dataset) -> str:
    """Which learned covariance is nearest to the true one, over all t."""
    errors = results["covariance_error"].mean("t")
    told = []
    for score in errors["score"].values.tolist():
        one = errors.sel(score=score)
        learned = [m for m in methods_with_values(one) if not m.startswith("exact_")]
        best = min(learned, key=lambda label: float(one.sel({"method": label})))
        told.append(f"{best} with the {score} score ({float(one.sel({'method': best})):.3g})")
    return f"Apart from exact Jacobians, the least mean squared error is that of {listed(told)}."


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
