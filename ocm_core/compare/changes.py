"""What differs between two revisions, experiment by experiment, and whether it is noise.

A mean over n seeds with standard deviation s has the standard error s/√n; that of a likelihood is
over the images of the test set. Two runs differ beyond noise where |Δ| > 2·√(e₁² + e₂²). Runs that
share seeds and images share much of their noise, so this errs on the side of caution. Where no
spread was recorded, nothing is said about noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import hypot
from typing import Any

from ocm_core.compare.number_state import CURRENT, MISSING, number_state
from ocm_core.compare.recorded import Key, RecordedExperiment, names, recorded, spread_names
from ocm_core.compare.revisions import Revision
from ocm_core.report.statistics.estimates import Estimate


class ChangeVerdict(IntEnum):
    """In the order of a table."""

    BEYOND = 0
    UNKNOWN = 1
    NEW = 2
    GONE = 3
    WITHIN = 4
    SAME = 5

    @property
    def words(self) -> str:
        return (
            "beyond noise",
            "no spread recorded",
            "new",
            "gone",
            "within noise",
            "unchanged",
        )[self]

    @property
    def is_minor(self) -> bool:
        """Whether tables leave it out unless everything is asked for."""
        return self >= ChangeVerdict.WITHIN


@dataclass(frozen=True)
class Number:
    key: Key  # metric, sampler, method, K<steps>, ...; metric, method, t<time>
    before: float | None
    after: float | None
    error: float  # standard error of the difference; NaN where no spread was recorded

    @property
    def change(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def share(self) -> float:
        """The size of the change beside that of the numbers, at most 2: orders unlike metrics."""
        if self.before is None or self.after is None or self.before == self.after:
            return 0.0
        return abs(self.after - self.before) / max(abs(self.before), abs(self.after))

    @property
    def verdict(self) -> ChangeVerdict:
        if self.before is None or self.after is None:
            return ChangeVerdict.NEW if self.before is None else ChangeVerdict.GONE
        if self.before == self.after:
            return ChangeVerdict.SAME
        gap = Estimate(self.after - self.before, self.error)
        if not gap.has_error:
            return ChangeVerdict.UNKNOWN
        return ChangeVerdict.WITHIN if gap.is_noise else ChangeVerdict.BEYOND


@dataclass(frozen=True)
class Parameter:
    key: str
    before: Any  # None: null, or not there
    after: Any


@dataclass(frozen=True)
class Changes:
    """Of one experiment. Numbers are all there are: by verdict, metric and size of the change."""

    name: str
    numbers: tuple[Number, ...]
    parameters: tuple[Parameter, ...]
    state: str = CURRENT  # of the numbers after: whether the parameters after have made them

    @property
    def old(self) -> str:
        """Why the numbers after are from before; blank where they are not, or where none are."""
        return "" if self.state in (CURRENT, MISSING) else self.state.removeprefix("stale: ")

    @property
    def differ(self) -> bool:
        """Whether there is more than noise."""
        return bool(self.parameters) or any(not n.verdict.is_minor for n in self.numbers)

    def count(self, verdict: ChangeVerdict) -> int:
        return sum(number.verdict is verdict for number in self.numbers)


@dataclass(frozen=True)
class Comparison:
    before: str
    after: str
    experiments: tuple[Changes, ...]


def compare(before: Revision, after: Revision) -> Comparison:
    """Every experiment that has numbers, or parameters on both sides, in one of the two."""
    found = []
    for name in names(before, after):
        old, new = recorded(before, name), recorded(after, name)
        numbers, parameters = _numbers(old, new), _parameters(old, new)
        found.append(Changes(name, numbers, parameters, number_state(after, name)))
    return Comparison(
        before.name, after.name, tuple(one for one in found if one.numbers or one.parameters)
    )


def _numbers(old: RecordedExperiment, new: RecordedExperiment) -> tuple[Number, ...]:
    keys = dict.fromkeys([*old.numbers, *new.numbers])
    spreads = spread_names(keys)
    found = [
        Number(
            key,
            old.numbers.get(key),
            new.numbers.get(key),
            hypot(old.error(key), new.error(key)),
        )
        for key in keys
        if key[0] not in spreads
    ]
    order = list(dict.fromkeys(key[0] for key in keys))  # the metrics as the file has them
    ranks = {name: rank for rank, name in enumerate(order)}
    return tuple(sorted(found, key=lambda n: (n.verdict, ranks[n.key[0]], -n.share)))


def _parameters(old: RecordedExperiment, new: RecordedExperiment) -> tuple[Parameter, ...]:
    """None for an experiment that is new or gone: it differs in all of them."""
    if not old.parameters or not new.parameters:
        return ()
    keys = dict.fromkeys([*old.parameters, *new.parameters])
    pairs = [(key, old.parameters.get(key), new.parameters.get(key)) for key in keys]
    return tuple(Parameter(".".join(key), a, b) for key, a, b in pairs if a != b)
