"""The paper's claims about images, each decided from the numbers at hand.

As on the toy page, a claim has the verdict of its worst case, and claims about what an experiment
does not have are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import hypot

import xarray as xr

from ocm_core.report.claims.cases import is_better, is_negative, merged
from ocm_core.report.page.verdicts import Case, Claim, Verdict
from ocm_core.report.statistics.estimates import Estimate
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
    names = {"distance": results.distance}
    checked = [
        Claim(key, short.format(**names), text.format(**names), tuple(check(results)))
        for key, short, text, check in _CLAIMS
    ]
    return [claim for claim in checked if claim.cases]


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


def _lower_bound_at_few(results: ImageResults) -> Iterator[Case]:
    few = [comparison for k, comparison in _bounds(results).items() if k in FEW]
    for rival in ("analytic", "beta"):
        both = [comparison for comparison in few if {"ocm", rival} <= {*comparison.means}]
        yield from merged(
            f"against {rival}", [is_better(comparison, "ocm", rival) for comparison in both]
        )


def _much_worse(results: ImageResults) -> Iterator[Case]:
    few = [comparison for k, comparison in _bounds(results).items() if k in FEW]
    for rival in ("sn", "beta_tilde"):
        both = [comparison for comparison in few if {"ocm", rival} <= {*comparison.means}]
        yield from merged(rival, [_far_above(comparison, rival) for comparison in both])


def _far_above(comparison: MethodComparison, rival: str) -> Case:
    gap = comparison.gap("ocm", rival)
    verdict = is_negative(Estimate(gap.mean + MUCH, gap.error))
    return Case(comparison.where, comparison.numbers("ocm", rival), verdict)


def _lowest_bound_at_many(results: ImageResults) -> Iterator[Case]:
    many = [comparison for k, comparison in _bounds(results).items() if k >= MANY]
    yield from merged("DDPM", [_best_or_near(results, comparison) for comparison in many])


def _best_or_near(results: ImageResults, comparison: MethodComparison) -> Case | None:
    """Lowest, or at most one standard error above the lowest other, as of independent runs.

    Heads of the same kind, with other numbers of probes, do not count as others.
    """
    rival = comparison.best([label for label in comparison.means if results.kinds[label] != "ocm"])
    if rival is None or "ocm" not in comparison.means:
        return None
    gap = comparison.independent_gap("ocm", rival)
    verdict = Verdict.HOLDS if gap.mean <= gap.error else Verdict.FAILS
    if gap.is_finite and not gap.has_error:
        verdict = Verdict.UNDECIDED
    return Case(comparison.where, comparison.numbers("ocm", rival, gap), verdict)


def _falls(results: ImageResults) -> Iterator[Case]:
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


def _fixed_is_worst(results: ImageResults) -> Iterator[Case]:
    for where, comparisons in _comparisons(results, "fid", "ddpm"):
        few = [comparison for k, comparison in comparisons.items() if k <= max(FEW)]
        yield from merged(where, [_beta_above_all(comparison) for comparison in few])


def _beta_above_all(comparison: MethodComparison) -> Case | None:
    rival = comparison.best([label for label in comparison.means if label != "beta"], highest=True)
    if rival is None or "beta" not in comparison.means:
        return None
    return is_better(comparison, "beta", rival, higher=True)


def _best_distance(results: ImageResults) -> Iterator[Case]:
    for where, comparisons in _comparisons(results, "fid", "ddpm"):
        yield from merged(
            where, [_best_or_near(results, comparison) for comparison in comparisons.values()]
        )


def _recall_at_few(results: ImageResults) -> Iterator[Case]:
    if results.guided:
        return
    for where, comparisons in _comparisons(results, "recall", "ddpm"):
        few = [comparison for k, comparison in comparisons.items() if k in FEW]
        yield from merged(where, [_recall(comparison, RECALL_RIVALS["ddpm"]) for comparison in few])


def _recall_when_guided(results: ImageResults) -> Iterator[Case]:
    for sampler, rival in RECALL_RIVALS.items() if results.guided else ():
        for where, comparisons in _comparisons(results, "recall", sampler):
            fewest = [comparisons[k] for k in sorted(comparisons)[:1]]
            yield from merged(where, [_recall(comparison, rival) for comparison in fewest])


def _recall(comparison: MethodComparison, rival: str) -> Case | None:
    if not {"ocm", rival} <= {*comparison.means}:
        return None
    return is_better(comparison, "ocm", rival, higher=True)


ImageCheck = Callable[[ImageResults], Iterator[Case]]

_CLAIMS: tuple[tuple[str, str, str, ImageCheck], ...] = (
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
