"""From a comparison of methods to a case of a claim: does it hold here, or is it noise?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ocm_core.report.page.verdicts import Case, Verdict
from ocm_core.report.statistics.estimates import Estimate
from ocm_core.report.statistics.method_comparison import MethodComparison


def is_better(at: MethodComparison, ours: str, rival: str, *, higher: bool = False) -> Case:
    """Whether the mean of `ours` is lower (or higher) than that of `rival`."""
    gap = at.gap(ours, rival)
    return Case(at.where, at.numbers(ours, rival), is_negative(-gap if higher else gap))


def is_negative(gap: Estimate) -> Verdict:
    """Whether the gap is below zero beyond its noise; undecided where its error is not known."""
    if not gap.is_finite:
        return Verdict.FAILS
    if not gap.has_error:
        return Verdict.UNDECIDED
    if gap.is_below:
        return Verdict.HOLDS
    return Verdict.NOISE if gap.is_noise else Verdict.FAILS


def merged(where: str, found: Sequence[Case | None]) -> Iterator[Case]:
    """Several cases as one, with the worst of their verdicts; none if all are None."""
    cases = [case for case in found if case is not None]
    if cases:
        numbers = "; ".join(f"{case.where}: {case.numbers}" for case in cases)
        yield Case(where, numbers, max(case.verdict for case in cases))
