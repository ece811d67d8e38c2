"""The summary of a toy experiment: three sentences, each made of the numbers below it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import xarray as xr

from ocm_core.report.stats import estimate
from ocm_core.report.verdicts import Claim

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
        found.append(_tally(claims))
    return tuple(found)


def headline_steps(sampled: Collection[int]) -> list[int]:
    """The few-step chains that the page talks about: K = 5 and 10, or the shortest there is."""
    return [k for k in HEADLINE_STEPS if k in sampled] or [min(sampled)]


def _best(values: xr.DataArray, steps: Sequence[int], score: str) -> str:
    parts = []
    for k in steps:
        winners = [
            f"{_lowest(values.sel(sampler=sampler, steps=k))} with {str(sampler).upper()}"
            for sampler in values["sampler"].values
        ]
        parts.append(f"at K = {k} by {_listed(winners)}")
    return f"With the {score} score, the lowest MMD is reached {'; '.join(parts)}."


def _lowest(at: xr.DataArray) -> str:
    """The best method, and how many others cannot be told from it."""
    known = at.dropna("method", how="any").transpose("method", "seed")
    means = {str(row["method"].item()): float(row.mean()) for row in known}
    best = min(means, key=lambda label: means[label])
    lowest = known.sel({"method": best})
    ties = sum(estimate(row - lowest).is_noise for row in known) - 1  # it ties with itself
    others = f", {ties} more within noise" if ties > 0 else ""
    return f"{best} ({means[best]:.3g}{others})"


def _above_floor(values: xr.DataArray, steps: Sequence[int], floor: float) -> str:
    """How far `ocm` is from what a perfect sampler would get."""
    start = f"A perfect sampler would have an MMD of {floor:.3g}"
    if "ocm" not in values["method"]:
        return f"{start}."
    ocm = values.sel({"method": "ocm"}).mean("seed", skipna=False) / floor
    parts = []
    for sampler in ocm["sampler"].values:
        ratios = [f"{float(ocm.sel(sampler=sampler, steps=k)):.2g}" for k in steps]
        parts.append(f"{_listed(ratios)} times that with {str(sampler).upper()}")
    at = _listed([f"K = {k}" for k in steps])
    return f"{start}; at {at}, ocm has {_listed(parts)}."


def _tally(claims: Sequence[Claim]) -> str:
    """The claims by verdict, those that fail last."""
    verdicts = sorted({claim.verdict for claim in claims})
    groups = [
        f"{verdict.heading} {_listed([c.short for c in claims if c.verdict is verdict])}"
        for verdict in verdicts
    ]
    return f"Of the paper's claims, {'; '.join(groups)}."


def _listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
