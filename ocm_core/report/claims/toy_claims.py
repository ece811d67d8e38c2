"""The paper's claims about its toy problems, each decided from the numbers at hand.

A claim is checked case by case (a score, a sampler); its verdict is that of its worst case. Claims
about methods, steps or scores that an experiment does not have are left out. Heads are compared
within one family: that of the papers' form, or another where that was not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import xarray as xr

from ocm_core.report.claims.cases import is_better, merged
from ocm_core.report.page.verdicts import Case, Claim, Verdict
from ocm_core.report.statistics.estimates import NOISE, Estimate, independent_gap
from ocm_core.report.statistics.head_families import (
    HeadFamilies,
    HeadFamily,
    claimed_family,
    comparable,
)
from ocm_core.report.statistics.method_comparison import FIXED_VARIANCES, MethodComparison
from ocm_core.report.statistics.selections import methods_with_values


def claims(results: xr.Dataset, families: HeadFamilies) -> list[Claim]:
    """Every claim that the results can say something about."""
    checked = [_checked(results, families, *claim) for claim in _CLAIMS if claim[1] in results]
    return [claim for claim in checked if claim.cases]


def _checked(
    results: xr.Dataset,
    families: HeadFamilies,
    key: str,
    measure: str,
    short: str,
    text: str,
    check: ToyCheck,
) -> Claim:
    """Within the family of heads that the measure has values of, and named by its labels."""
    heads = claimed_family(families, methods_with_values(results[measure]))
    cases = check(comparable(results, families, heads), heads)
    return Claim(key, short.format(**heads.names), text.format(**heads.names), tuple(cases))


def _lower_error(score: str) -> ToyCheck:
    def check(results: xr.Dataset, heads: HeadFamily) -> Iterator[Case]:
        if score not in results["score"]:
            return
        errors = results[["covariance_error", "covariance_error_se"]].sel(score=score)
        present = {*methods_with_values(errors["covariance_error"])}
        ocm = heads.label("ocm")
        for rival in (heads.label("npr"), heads.label("sn")):
            if {ocm, rival} <= present:
                yield _compare_errors(errors.dropna("t", how="all"), ocm, rival)

    return check


def _compare_errors(errors: xr.Dataset, ocm: str, rival: str) -> Case:
    """At each t, with errors taken as independent: a careful guess, as the points are the same."""
    ours, theirs = (errors.sel({"method": label}) for label in (ocm, rival))
    gap = ours["covariance_error"] - theirs["covariance_error"]
    noise = NOISE * np.hypot(ours["covariance_error_se"], theirs["covariance_error_se"])
    ratio = theirs["covariance_error"] / ours["covariance_error"]
    lower = int((gap < 0).sum())
    worst = ratio.argmin("t")
    verdict = Verdict.HOLDS if lower == gap.size else Verdict.NOISE
    if not bool((gap <= noise).all()):
        verdict = Verdict.FAILS
    return Case(
        f"against {rival}",
        f"lower at {lower} of {gap.size} t; {rival}'s error is {float(ratio.median()):.3g} times "
        f"{ocm}'s in the median, {float(ratio[worst]):.3g} times at t = {int(gap['t'][worst])}",
        verdict,
    )


def _matches_exact(results: xr.Dataset, heads: HeadFamily) -> Iterator[Case]:
    ocm = heads.label("ocm")
    for where, chain in _chains(results):
        if not {ocm, "exact_diag"} <= {*methods_with_values(chain)}:
            continue
        steps = [int(k) for k in chain["steps"].values if k >= 5]
        ours, exact = (chain.sel({"method": label}) for label in (ocm, "exact_diag"))
        gaps = {k: independent_gap(ours.sel(steps=k), exact.sel(steps=k)) for k in steps}
        if gaps:
            yield Case(where, _widest_gap(gaps, chain), _all_within_noise(list(gaps.values())))


def _all_within_noise(gaps: Sequence[Estimate]) -> Verdict:
    if not all(gap.is_finite for gap in gaps):
        return Verdict.FAILS
    if not gaps[0].has_error:
        return Verdict.UNDECIDED
    return Verdict.HOLDS if all(gap.is_noise for gap in gaps) else Verdict.FAILS


def _widest_gap(gaps: dict[int, Estimate], chain: xr.DataArray) -> str:
    inside = sum(gap.is_noise for gap in gaps.values())
    widest = max(gaps, key=lambda k: gaps[k].clarity)
    gap = gaps[widest]
    exact = float(chain.sel({"steps": widest, "method": "exact_diag"}).mean(skipna=False))
    return (
        f"within sampling noise at {inside} of {len(gaps)} K; the clearest gap is "
        f"{gap.mean / exact:+.1%} (± {gap.error / exact:.1%}) at K = {widest}"
    )


def _beats_fixed(results: xr.Dataset, heads: HeadFamily) -> Iterator[Case]:
    ocm = heads.label("ocm")
    for where, chain in _chains(results):
        if ocm in methods_with_values(chain):
            few = [int(k) for k in chain["steps"].values if 5 <= k <= 10]
            cases = [_beats_best_fixed(k, chain.sel(steps=k), ocm) for k in few]
            yield from merged(where, cases)


def _beats_best_fixed(k: int, values: xr.DataArray, ocm: str) -> Case | None:
    at = MethodComparison.of_seeds(f"K = {k}", values)
    rival = at.best(FIXED_VARIANCES)
    return is_better(at, ocm, rival) if rival else None


def _full_beats_diagonal(results: xr.Dataset, _: HeadFamily) -> Iterator[Case]:
    for where, chain in _chains(results):
        present = {*methods_with_values(chain)}
        if {"exact_full", "exact_diag"} <= present and 10 in chain["steps"]:
            at = MethodComparison.of_seeds(where, chain.sel(steps=10))
            yield is_better(at, "exact_full", "exact_diag")


def _finite_at_fewest_steps(results: xr.Dataset, heads: HeadFamily) -> Iterator[Case]:
    """Finite for every method that was sampled, and OCM not above the fixed variance."""
    if "clamped" not in results:
        return
    ocm = heads.label("ocm")
    sampled = results["clamped"].notnull()
    for where, chain in _chains(results):
        asked = sampled.sel(score=chain["score"], sampler=chain["sampler"])
        fewest = [int(k) for k in chain["steps"].values if k in (2, 3)]
        cases = [
            _finite_and_no_worse(k, chain.sel(steps=k), asked.sel(steps=k), ocm) for k in fewest
        ]
        yield from merged(where, cases)


def _finite_and_no_worse(k: int, values: xr.DataArray, asked: xr.DataArray, ocm: str) -> Case:
    at = MethodComparison.of_seeds(f"K = {k}", values)
    infinite = (asked & values.isnull()).any("seed")
    broken = [str(method) for method in infinite["method"].values[infinite.values]]
    if broken:
        return Case(at.where, f"not finite: {', '.join(broken)}", Verdict.FAILS)
    rival = next((label for label in ("beta", "delta") if label in at.means), None)
    if rival is None or ocm not in at.means:
        return Case(at.where, "all finite", Verdict.HOLDS)
    gap = at.gap(ocm, rival)
    verdict = Verdict.HOLDS if gap.mean <= 0 else Verdict.FAILS
    if verdict is Verdict.FAILS and gap.is_noise:
        verdict = Verdict.NOISE
    numbers = f"all finite, {ocm} {at.means[ocm]:.3g}, {rival} {at.means[rival]:.3g}"
    return Case(at.where, numbers, verdict)


def _chains(results: xr.Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    """MMD over (method, steps, seed), for every sampler and score."""
    for sampler in results["sampler"].values:
        for score in results["score"].values:
            chain = results["mmd"].sel(sampler=sampler, score=score)
            yield f"{str(sampler).upper()}, {score} score", chain


ToyCheck = Callable[[xr.Dataset, HeadFamily], Iterator[Case]]

_CLAIMS: tuple[tuple[str, str, str, str, ToyCheck], ...] = (  # key, measure, short, text, check
    (
        "a",
        "covariance_error",
        "{ocm}'s lower covariance error with the true score",
        "With the true score, {ocm} has a lower covariance error than {npr} and {sn} at every t.",
        _lower_error("true"),
    ),
    (
        "b",
        "covariance_error",
        "{ocm}'s lower covariance error with the learned score",
        "With the learned score, {ocm} has a lower covariance error than {npr} and {sn} at every "
        "t.",
        _lower_error("learned"),
    ),
    (
        "c",
        "mmd",
        "{ocm} as good as exact_diag from K = 5 on",
        "From K = 5 on, {ocm} samples as well as exact_diag, within sampling noise.",
        _matches_exact,
    ),
    (
        "d",
        "mmd",
        "{ocm} better than fixed variances at few steps",
        "At few steps (K from 5 to 10), {ocm} beats the best fixed variance.",
        _beats_fixed,
    ),
    (
        "e",
        "mmd",
        "exact_full better than exact_diag at K = 10",
        "At K = 10, exact_full beats exact_diag.",
        _full_beats_diagonal,
    ),
    (
        "f",
        "mmd",
        "sensible samples at K = 2 and 3",
        "K = 2 and 3 are finite for every method, and {ocm} is not worse than beta (DDIM: delta).",
        _finite_at_fewest_steps,
    ),
)
