"""The paper's claims about images, each decided from the numbers at hand.

As on the toy page, a claim has the verdict of its worst case, and claims about what an experiment
does not have are left out. Heads are compared within one family: that of the papers' form, or
another where that was not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import hypot

import xarray as xr

from ocm_core.report.claims.cases import is_better, is_negative, merged
from ocm_core.report.page.verdicts import Case, Claim, Verdict
from ocm_core.report.statistics.estimates import Estimate
from ocm_core.report.statistics.head_families import HeadFamily, comparable
from ocm_core.report.statistics.image_results import ImageResults
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.selections import methods_with_values
from ocm_core.text import listed

FEW = (5, 10)
MANY = 25
MUCH = 1.0  # bits per dimension
RECALL_RIVALS = {"ddpm": "beta_tilde", "ddim": "delta"}


def claims(results: ImageResults) -> list[Claim]:
    """Every claim that the results can say something about."""
    checked = [_checked(results, *claim) for claim in _CLAIMS]
    return [claim for claim in checked if claim.cases]


def _checked(
    results: ImageResults, key: str, measure: str, short: str, text: str, check: ImageCheck
) -> Claim:
    """Within the family of heads that the measure has values of, and named by its labels."""
    heads = results.heads(measure)
    like = replace(results, dataset=comparable(results.dataset, results.families, heads))
    names = {"distance": results.distance, **heads.names}
    return Claim(key, short.format(**names), text.format(**names), tuple(check(like, heads)))


def _bounds(results: ImageResults) -> dict[int, MethodComparison]:
    """NLL at each K."""
    if not results.has("nll"):
        return {}
    means, errors = results.mean("nll"), results.error("nll")
    steps = [int(k) for k in means.dropna("steps", how="all")["steps"].values]
    return {
        k: MethodComparison.of_errors(f"K = {k}", means.sel(steps=k), errors.sel(steps=k))
        for k in steps
    }


def _lower_bound_at_few(results: ImageResults, heads: HeadFamily) -> Iterator[Case]:
    ocm = heads.label("ocm")
    few = [at for k, at in _bounds(results).items() if k in FEW]
    for rival in ("analytic", "beta"):
        both = [at for at in few if {ocm, rival} <= {*at.means}]
        yield from merged(f"against {rival}", [is_better(at, ocm, rival) for at in both])


def _much_worse(results: ImageResults, heads: HeadFamily) -> Iterator[Case]:
    ocm = heads.label("ocm")
    few = [at for k, at in _bounds(results).items() if k in FEW]
    for rival in (heads.label("sn"), "beta_tilde"):
        both = [at for at in few if {ocm, rival} <= {*at.means}]
        yield from merged(rival, [_far_above(at, ocm, rival) for at in both])


def _far_above(at: MethodComparison, ours: str, rival: str) -> Case:
    gap = at.gap(ours, rival)
    verdict = is_negative(Estimate(gap.mean + MUCH, gap.error))
    return Case(at.where, at.numbers(ours, rival), verdict)


def _lowest_bound_at_many(results: ImageResults, heads: HeadFamily) -> Iterator[Case]:
    many = [at for k, at in _bounds(results).items() if k >= MANY]
    yield from merged("DDPM", [_best_or_near(at, heads) for at in many])


def _best_or_near(at: MethodComparison, heads: HeadFamily) -> Case | None:
    """Whether OCM is lowest, or at most one standard error above, as of independent runs.

    Other OCM heads, with other numbers of probes, are no rivals.
    """
    ocm = heads.label("ocm")
    rival = at.best([label for label in at.means if heads.kinds.get(label) != "ocm"])
    if rival is None or ocm not in at.means:
        return None
    gap = at.independent_gap(ocm, rival)
    verdict = Verdict.HOLDS if gap.mean <= gap.error else Verdict.FAILS
    if gap.is_finite and not gap.has_error:
        verdict = Verdict.UNDECIDED
    return Case(at.where, at.numbers(ocm, rival, gap), verdict)


def _falls(results: ImageResults, _: HeadFamily) -> Iterator[Case]:
    """Method by method; those that fall at every K in one case."""
    if not results.has("nll"):
        return
    falling = []
    means, errors = results.mean("nll"), results.error("nll")
    known = methods_with_values(means)
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
    """The clearest rise from one K to the next; None where it falls all the way."""
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


def _comparisons(
    results: ImageResults, key: str, sampler: str
) -> Iterator[tuple[str, dict[int, MethodComparison]]]:
    """A comparison at each K, for each guidance scale."""
    if key not in results.measures or sampler not in results.dataset["sampler"]:
        return
    values = results.dataset[key].sel(sampler=sampler)
    for guidance in values["guidance"].values:
        here = values.sel(guidance=guidance)
        steps = [int(k) for k in here.dropna("steps", how="all")["steps"].values]
        found = {k: MethodComparison.of_seeds(f"K = {k}", here.sel(steps=k)) for k in steps}
        yield results.place(sampler, float(guidance)), found


def _fixed_is_worst(results: ImageResults, _: HeadFamily) -> Iterator[Case]:
    for where, by_steps in _comparisons(results, "fid", "ddpm"):
        few = [at for k, at in by_steps.items() if k <= max(FEW)]
        yield from merged(where, [_beta_above_all(at) for at in few])


def _beta_above_all(at: MethodComparison) -> Case | None:
    rival = at.best([label for label in at.means if label != "beta"], highest=True)
    if rival is None or "beta" not in at.means:
        return None
    return is_better(at, "beta", rival, higher=True)


def _best_distance(results: ImageResults, heads: HeadFamily) -> Iterator[Case]:
    for where, by_steps in _comparisons(results, "fid", "ddpm"):
        yield from merged(where, [_best_or_near(at, heads) for at in by_steps.values()])


def _recall_at_few(results: ImageResults, heads: HeadFamily) -> Iterator[Case]:
    if results.guided:
        return
    for where, by_steps in _comparisons(results, "recall", "ddpm"):
        few = [at for k, at in by_steps.items() if k in FEW]
        yield from merged(where, [_recall(at, heads, RECALL_RIVALS["ddpm"]) for at in few])


def _recall_when_guided(results: ImageResults, heads: HeadFamily) -> Iterator[Case]:
    for sampler, rival in RECALL_RIVALS.items() if results.guided else ():
        for where, by_steps in _comparisons(results, "recall", sampler):
            fewest = [by_steps[k] for k in sorted(by_steps)[:1]]
            yield from merged(where, [_recall(at, heads, rival) for at in fewest])


def _recall(at: MethodComparison, heads: HeadFamily, rival: str) -> Case | None:
    ocm = heads.label("ocm")
    if not {ocm, rival} <= {*at.means}:
        return None
    return is_better(at, ocm, rival, higher=True)


ImageCheck = Callable[[ImageResults, HeadFamily], Iterator[Case]]

_CLAIMS: tuple[tuple[str, str, str, str, ImageCheck], ...] = (  # key, measure, short, text, check
    (
        "a",
        "nll",
        f"{{ocm}}'s lowest NLL from K = {MANY} on",
        f"From K = {MANY} on, {{ocm}} has the lowest NLL, or is within one standard error of it.",
        _lowest_bound_at_many,
    ),
    (
        "b",
        "nll",
        "{ocm}'s lower NLL than analytic's and beta's at few steps",
        "At K = 5 and 10, {ocm} has a lower NLL than analytic and beta.",
        _lower_bound_at_few,
    ),
    (
        "c",
        "nll",
        "much higher NLL of {sn} and beta_tilde at few steps",
        "At K = 5 and 10, the NLL of {sn} and of beta_tilde is more than "
        f"{MUCH:g} bits/dim above that of {{ocm}}.",
        _much_worse,
    ),
    (
        "d",
        "nll",
        "NLL falling with K",
        "NLL falls with K, for every method.",
        _falls,
    ),
    (
        "e",
        "fid",
        "beta's worst {distance} at few steps",
        "Up to K = 10, beta has the highest {distance} with DDPM.",
        _fixed_is_worst,
    ),
    (
        "f",
        "fid",
        "{ocm}'s best {distance} with DDPM",
        "At every K, {ocm} has the lowest {distance} with DDPM, or is within one standard error of "
        "it.",
        _best_distance,
    ),
    (
        "g",
        "recall",
        "{ocm}'s higher recall than beta_tilde's at few steps",
        "At K = 5 and 10, {ocm} has a higher recall than beta_tilde.",
        _recall_at_few,
    ),
    (
        "h",
        "recall",
        "{ocm}'s higher recall at every guidance",
        "At the smallest K and every guidance scale, {ocm} has a higher recall than beta_tilde "
        "(DDIM: delta).",
        _recall_when_guided,
    ),
)
