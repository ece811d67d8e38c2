"""A claim of the paper, the cases in which it was checked, and the verdict on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ocm_core.text import listed


class Verdict(IntEnum):
    """From best to worst, so that the worst of several is their maximum."""

    HOLDS = 0
    NOISE = 1
    UNDECIDED = 2
    FAILS = 3

    @property
    def words(self) -> str:
        return ("holds", "within noise", "undecided", "does not hold")[self]

    @property
    def heading(self) -> str:
        """Before a list of claims."""
        return ("these hold:", "within noise:", "undecided:", "these do not hold:")[self]


@dataclass(frozen=True)
class Case:
    """One sampler, score or number of steps where a claim was checked."""

    where: str
    numbers: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """Has the verdict of its worst case."""

    key: str  # a, b, c, …
    short: str  # for the summary
    text: str
    cases: tuple[Case, ...]

    @property
    def verdict(self) -> Verdict:
        return max(case.verdict for case in self.cases)


def tally(claims: Sequence[Claim]) -> str:
    """One sentence: the claims by verdict, those that fail last; nothing without claims."""
    if not claims:
        return ""
    groups = [
        f"{verdict.heading} {listed([c.short for c in claims if c.verdict is verdict])}"
        for verdict in sorted({claim.verdict for claim in claims})
    ]
    return f"Of the paper's claims, {'; '.join(groups)}."
