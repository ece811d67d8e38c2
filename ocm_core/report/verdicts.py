"""A claim, the cases in which it was checked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


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
    where: str
    numbers: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    key: str
    short: str
    text: str
    cases: tuple[Case, ...]

    @property
    def verdict(self) -> Verdict:
        return max(case.verdict for case in self.cases)
