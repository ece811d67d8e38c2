"""The paper's claims about images, each decided from the numbers at hand.

As on the toy page, a claim has the verdict of its worst case, and claims about what an experiment
does not have are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import hypot

import xarray as xr

from ocm_core.report.page.verdicts import Case, Claim, Verdict
from ocm_core.report.statistics.estimates import Estimate
from ocm_core.report.statistics.image_results import Evidence
from ocm_core.report.statistics.method_comparison import Contest, below, with_values, worst
from ocm_core.text import listed

FEW = (5, 10)
MANY = 25
MUCH = 1.0  # bits per dimension
RECALL_RIVALS = {"ddpm": "beta_tilde", "ddim": "delta"}


def claims(evidence: Evidence) -> list[Claim]:
    """Every claim that the results can say something about."""
    names = {"distance": evidence.distance}
    checked = [
        Claim(key, short.format(**names), text.format(**names), tuple(check(evidence)))
        for key, short, text, check in _CLAIMS
    ]
    return [claim for claim in checked if claim.cases]


def _bounds(evidence: Evidence) -> dict[int, Contest]:
    """NLL at each K."""
    if not evidence.has("nll"):
        return {}
    means, errors = evidence.mean("nll"), evidence.error("nll")
    steps = [int(k) for k in means.dropna("steps", how="all")["steps"].values]
    return {
        k: Contest.of_errors(f"K = {k}", means.sel(steps=k), errors.sel(steps=k)) for k in steps
    }


def _lower_bound_at_few(evidence: Evidence) -> Iterator[Case]:
    few = [contest for k, contest in _bounds(evidence).items() if k in FEW]
    for rival in ("analytic", "beta"):
        both = [contest for contest in few if {"ocm", rival} <= {*contest.means}]
        yield from worst(f"against {rival}", [contest.beats("ocm", rival) for contest in both])


def _much_worse(evidence: Evidence) -> Iterator[Case]:
    few = [contest for k, contest in _bounds(evidence).items() if k in FEW]
    for rival in ("sn", "beta_tilde"):
        both = [contest for contest in few if {"ocm", rival} <= {*contest.means}]
        yield from worst(rival, [_far_above(contest, rival) for contest in both])


def _far_above(contest: Contest, rival: str) -> Case:
    gap = contest.gap("ocm", rival)
    verdict = below(Estimate(gap.mean + MUCH, gap.error))
    return Case(contest.where, contest.numbers("ocm", rival), verdict)


def _lowest_bound_at_many(evidence: Evidence) -> Iterator[Case]:
    many = [contest for k, contest in _bounds(evidence).items() if k >= MANY]
    yield from worst("DDPM", [_best_or_near(evidence, contest) for contest in many])


def _best_or_near(evidence: Evidence, contest: Contest) -> Case | None:
    """Lowest, or at most one standard error above the lowest other, as of independent runs.

    Heads of its own with other numbers of probes are no others.
    """
    rival = contest.best([label for label in contest.means if evidence.kinds[label] != "ocm"])
    if rival is None or "ocm" not in contest.means:
        return None
    gap = contest.apart("ocm", rival)
    verdict = Verdict.HOLDS if gap.mean <= gap.error else Verdict.FAILS
    if gap.is_finite and not gap.has_error:
        verdict = Verdict.UNDECIDED
    return Case(contest.where, contest.numbers("ocm", rival, gap), verdict)


def _falls(evidence: Evidence) -> Iterator[Case]:
    """Method by method; those that fall at every K in one case."""
    if not evidence.has("nll"):
        return
    falling = []
    means, errors = evidence.mean("nll"), evidence.error("nll")
    known = with_values(means)
    for label in known:
        one = {"method": label}
        case = _rise(label, means.sel(one).dropna("steps"), errors.sel(one))
        if case is None:
            falling.append(label)
        else:
            yield case
    if falling:
        numbers = f"{listed(falling)}: lower at each K than at the one before"
        yield Case(f"{len(falling)} of {len(known)} methods", numbers, Verdict.HOLDS)


def _rise(label: str, means: xr.DataArray, errors: xr.DataArray) -> Case | None:
    """The steepest rise from one K to the next; none if there is none."""
    rises = []
    for before, after in pairwise(means["steps"].values):
        rise = float(means.sel(steps=after) - means.sel(steps=before))
        noise = hypot(float(errors.sel(steps=after)), float(errors.sel(steps=before)))
        if rise >= 0:
            rises.append((Estimate(rise, noise), f"from K = {before} to {after}"))
    if not rises:
        return None
    gap, where = max(rises, key=lambda rise: rise[0].clarity)
    return Case(label, f"rises {where} by {gap}", Verdict.NOISE if gap.is_noise else Verdict.FAILS)


def _contests(
    evidence: Evidence, key: str, sampler: str
) -> Iterator[tuple[str, dict[int, Contest]]]:
    """A contest at each K, for each guidance scale."""
    if key not in evidence.measures or sampler not in evidence.results["sampler"]:
        return
    values = evidence.results[key].sel(sampler=sampler)
    for guidance in values["guidance"].values:
        here = values.sel(guidance=guidance)
        steps = [int(k) for k in here.dropna("steps", how="all")["steps"].values]
        found = {k: Contest.of_seeds(f"K = {k}", here.sel(steps=k)) for k in steps}
        yield evidence.place(sampler, float(guidance)), found


def _fixed_is_worst(evidence: Evidence) -> Iterator[Case]:
    for where, contests in _contests(evidence, "fid", "ddpm"):
        few = [contest for k, contest in contests.items() if k <= max(FEW)]
        yield from worst(where, [_beta_above_all(contest) for contest in few])


def _beta_above_all(contest: Contest) -> Case | None:
    rival = contest.best([label for label in contest.means if label != "beta"], highest=True)
    if rival is None or "beta" not in contest.means:
        return None
    return contest.beats("beta", rival, higher=True)


def _best_distance(evidence: Evidence) -> Iterator[Case]:
    for where, contests in _contests(evidence, "fid", "ddpm"):
        yield from worst(where, [_best_or_near(evidence, contest) for contest in contests.values()])


def _recall_at_few(evidence: Evidence) -> Iterator[Case]:
    if evidence.guided:
        return
    for where, contests in _contests(evidence, "recall", "ddpm"):
        few = [contest for k, contest in contests.items() if k in FEW]
        yield from worst(where, [_recall(contest, RECALL_RIVALS["ddpm"]) for contest in few])


def _recall_when_guided(evidence: Evidence) -> Iterator[Case]:
    for sampler, rival in RECALL_RIVALS.items() if evidence.guided else ():
        for where, contests in _contests(evidence, "recall", sampler):
            fewest = [contests[k] for k in sorted(contests)[:1]]
            yield from worst(where, [_recall(contest, rival) for contest in fewest])


def _recall(contest: Contest, rival: str) -> Case | None:
    if not {"ocm", rival} <= {*contest.means}:
        return None
    return contest.beats("ocm", rival, higher=True)


Check = Callable[[Evidence], Iterator[Case]]

_CLAIMS: tuple[tuple[str, str, str, Check], ...] = (
    (
        "a",
        f"ocm's lowest NLL from K = {MANY} on",
        f"From K = {MANY} on, ocm has the lowest NLL, or is within one standard error of it.",
        _lowest_bound_at_many,
    ),
    (
        "b",
        "ocm's lower NLL than analytic's and beta's at few steps",
        "At K = 5 and 10, ocm has a lower NLL than analytic and beta.",
        _lower_bound_at_few,
    ),
    (
        "c",
        "much higher NLL of sn and beta_tilde at few steps",
        f"At K = 5 and 10, the NLL of sn and of beta_tilde is more than {MUCH:g} bits/dim above "
        "that of ocm.",
        _much_worse,
    ),
    (
        "d",
        "NLL falling with K",
        "NLL falls with K, for every method.",
        _falls,
    ),
    (
        "e",
        "beta's worst {distance} at few steps",
        "Up to K = 10, beta has the highest {distance} with DDPM.",
        _fixed_is_worst,
    ),
    (
        "f",
        "ocm's best {distance} with DDPM",
        "At every K, ocm has the lowest {distance} with DDPM, or is within one standard error of "
        "it.",
        _best_distance,
    ),
    (
        "g",
        "ocm's higher recall than beta_tilde's at few steps",
        "At K = 5 and 10, ocm has a higher recall than beta_tilde.",
        _recall_at_few,
    ),
    (
        "h",
        "ocm's higher recall at every guidance",
        "At the smallest K and every guidance scale, ocm has a higher recall than beta_tilde "
        "(DDIM: delta).",
        _recall_when_guided,
    ),
)
