"""The paper's claims about its toy problems, each decided from the numbers at hand.

A claim is checked case by case (a score, a sampler); its verdict is that of its worst case. Claims
about methods, steps or scores that an experiment does not have are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import xarray as xr

from ocm_core.report.claims.cases import is_better, merged
from ocm_core.report.page.verdicts import Case, Claim, Verdict
from ocm_core.report.statistics.estimates import NOISE, Estimate, independent_gap
from ocm_core.report.statistics.method_comparison import FIXED_VARIANCES, MethodComparison
from ocm_core.report.statistics.selections import methods_with_values


def claims(results: xr.Dataset) -> list[Claim]:
    """Every claim that the results can say something about."""
    checked = [
        Claim(key, short, text, tuple(check(results))) for key, short, text, check in _CLAIMS
    ]
    return [claim for claim in checked if claim.cases]


def _lower_error(score: str) -> Callable[[xr.Dataset], Iterator[Case]]:
    def check(results: xr.Dataset) -> Iterator[Case]:
        if "covariance_error" not in results or score not in results["score"]:
            return
        errors = results[["covariance_error", "covariance_error_se"]].sel(score=score)
        present = {*methods_with_values(errors["covariance_error"])}
        for rival in ("npr", "sn"):
            if {"ocm", rival} <= present:
                yield _compare_errors(errors.dropna("t", how="all"), rival)

    return check


def _compare_errors(errors: xr.Dataset, rival: str) -> Case:
    """At each t, with errors taken as independent: a careful guess, as the points are the same."""
    ours, theirs = (errors.sel({"method": label}) for label in ("ocm", rival))
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
        f"ocm's in the median, {float(ratio[worst]):.3g} times at t = {int(gap['t'][worst])}",
        verdict,
    )


def _matches_exact(results: xr.Dataset) -> Iterator[Case]:
    for where, chain in _chains(results):
        if not {"ocm", "exact_diag"} <= {*methods_with_values(chain)}:
            continue
        steps = [int(k) for k in chain["steps"].values if k >= 5]
        ours, exact = (chain.sel({"method": label}) for label in ("ocm", "exact_diag"))
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


def _beats_fixed(results: xr.Dataset) -> Iterator[Case]:
    for where, chain in _chains(results):
        if "ocm" in methods_with_values(chain):
            few = [int(k) for k in chain["steps"].values if 5 <= k <= 10]
            yield from merged(where, [_beats_best_fixed(k, chain.sel(steps=k)) for k in few])


def _beats_best_fixed(k: int, at: xr.DataArray) -> Case | None:
    comparison = MethodComparison.of_seeds(f"K = {k}", at)
    rival = comparison.best(FIXED_VARIANCES)
    return is_better(comparison, "ocm", rival) if rival else None


def _full_beats_diagonal(results: xr.Dataset) -> Iterator[Case]:
    for where, chain in _chains(results):
        if {"exact_full", "exact_diag"} <= {*methods_with_values(chain)} and 10 in chain["steps"]:
            comparison = MethodComparison.of_seeds(where, chain.sel(steps=10))
            yield is_better(comparison, "exact_full", "exact_diag")


def _finite_at_fewest_steps(results: xr.Dataset) -> Iterator[Case]:
    """Finite for every method that was sampled, and `ocm` not above the fixed variance."""
    if "clamped" not in results:
        return
    drawn = results["clamped"].notnull()
    for where, chain in _chains(results):
        asked = drawn.sel(score=chain["score"], sampler=chain["sampler"])
        fewest = [int(k) for k in chain["steps"].values if k in (2, 3)]
        cases = [_finite_and_no_worse(k, chain.sel(steps=k), asked.sel(steps=k)) for k in fewest]
        yield from merged(where, cases)


def _finite_and_no_worse(k: int, at: xr.DataArray, asked: xr.DataArray) -> Case:
    comparison = MethodComparison.of_seeds(f"K = {k}", at)
    infinite = (asked & at.isnull()).any("seed")
    broken = [str(method) for method in infinite["method"].values[infinite.values]]
    if broken:
        return Case(comparison.where, f"not finite: {', '.join(broken)}", Verdict.FAILS)
    rival = next((label for label in ("beta", "delta") if label in comparison.means), None)
    if rival is None or "ocm" not in comparison.means:
        return Case(comparison.where, "all finite", Verdict.HOLDS)
    gap = comparison.gap("ocm", rival)
    verdict = Verdict.HOLDS if gap.mean <= 0 else Verdict.FAILS
    if verdict is Verdict.FAILS and gap.is_noise:
        verdict = Verdict.NOISE
    numbers = (
        f"all finite, ocm {comparison.means['ocm']:.3g}, {rival} {comparison.means[rival]:.3g}"
    )
    return Case(comparison.where, numbers, verdict)


def _chains(results: xr.Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    """MMD over (method, steps, seed), for every sampler and score."""
    if "mmd" not in results:
        return
    for sampler in results["sampler"].values:
        for score in results["score"].values:
            chain = results["mmd"].sel(sampler=sampler, score=score)
            yield f"{str(sampler).upper()}, {score} score", chain


ToyCheck = Callable[[xr.Dataset], Iterator[Case]]

_CLAIMS: tuple[tuple[str, str, str, ToyCheck], ...] = (
    (
        "a",
        "ocm's lower covariance error with the true score",
        "With the true score, ocm has a lower covariance error than npr and sn at every t.",
        _lower_error("true"),
    ),
    (
        "b",
        "ocm's lower covariance error with the learned score",
        "With the learned score, ocm has a lower covariance error than npr and sn at every t.",
        _lower_error("learned"),
    ),
    (
        "c",
        "ocm as good as exact_diag from K = 5 on",
        "From K = 5 on, ocm samples as well as exact_diag, within sampling noise.",
        _matches_exact,
    ),
    (
        "d",
        "ocm better than fixed variances at few steps",
        "At few steps (K from 5 to 10), ocm beats the best fixed variance.",
        _beats_fixed,
    ),
    (
        "e",
        "exact_full better than exact_diag at K = 10",
        "At K = 10, exact_full beats exact_diag.",
        _full_beats_diagonal,
    ),
    (
        "f",
        "sensible samples at K = 2 and 3",
        "K = 2 and 3 are finite for every method, and ocm is not worse than beta (DDIM: delta).",
        _finite_at_fewest_steps,
    ),
)
