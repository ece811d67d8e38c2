"""What differs between two revisions, experiment by experiment, and whether it is noise.

A mean over n seeds with standard deviation s has the standard error s/√n; two runs differ beyond
noise where |Δ| > 2·√(e₁² + e₂²). Runs that share their seeds share much of their noise, so this
errs on the side of caution. Where no spread was recorded, nothing is said about noise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import hypot, nan, sqrt
from typing import Any

import yaml

from ocm_core.compare.revisions import Revision
from ocm_core.errors import OcmError
from ocm_core.report.stats import Estimate

REPORTS, METRICS = "reports", ".metrics.json"
RESOLVED, PARAMS = "params/resolved", ".yaml"
SPREAD = "_std"  # of the name of the tree that holds a metric's deviations over seeds

Key = tuple[str, ...]


class Verdict(IntEnum):
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
    def is_quiet(self) -> bool:
        """Whether it is left out unless everything is asked for."""
        return self >= Verdict.WITHIN


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
    def verdict(self) -> Verdict:
        if self.before is None or self.after is None:
            return Verdict.NEW if self.before is None else Verdict.GONE
        if self.before == self.after:
            return Verdict.SAME
        gap = Estimate(self.after - self.before, self.error)
        if not gap.has_error:
            return Verdict.UNKNOWN
        return Verdict.WITHIN if gap.is_noise else Verdict.BEYOND


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

    @property
    def differ(self) -> bool:
        """Whether there is more than noise."""
        return bool(self.parameters) or any(not n.verdict.is_quiet for n in self.numbers)

    def count(self, verdict: Verdict) -> int:
        return sum(number.verdict is verdict for number in self.numbers)


@dataclass(frozen=True)
class Comparison:
    before: str
    after: str
    experiments: tuple[Changes, ...]


@dataclass(frozen=True)
class _Side:
    """What one revision says of one experiment; empty where it says nothing."""

    numbers: Mapping[Key, float]
    parameters: Mapping[Key, Any]

    def error(self, key: Key) -> float:
        deviation = self.numbers.get((f"{key[0]}{SPREAD}", *key[1:]), nan)
        seeds = self.parameters.get(("sample", "seeds"), [])
        return deviation / sqrt(len(seeds)) if seeds else nan


def compare(before: Revision, after: Revision) -> Comparison:
    """Every experiment that has numbers, or parameters on both sides, in one of the two."""
    pairs = [(_side(before, name), _side(after, name), name) for name in _names(before, after)]
    found = [Changes(name, _numbers(old, new), _parameters(old, new)) for old, new, name in pairs]
    return Comparison(
        before.name, after.name, tuple(one for one in found if one.numbers or one.parameters)
    )


def _names(*revisions: Revision) -> list[str]:
    places = ((REPORTS, METRICS), (RESOLVED, PARAMS))
    files = {
        path.removeprefix(f"{folder}/").removesuffix(suffix)
        for revision in revisions
        for folder, suffix in places
        for path in revision.files(folder)
        if path.endswith(suffix)
    }
    return sorted(files)


def _side(revision: Revision, name: str) -> _Side:
    metrics, params = f"{REPORTS}/{name}{METRICS}", f"{RESOLVED}/{name}{PARAMS}"
    return _Side(
        dict(_leaves(_tree(revision, REPORTS, metrics))),
        dict(_leaves(_tree(revision, RESOLVED, params))),
    )


def _tree(revision: Revision, folder: str, path: str) -> dict[str, Any]:
    if path not in revision.files(folder):
        return {}
    text = revision.read(path)
    try:
        tree = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise OcmError(
            f"{path} of {revision.name}: cannot be read ({str(error).splitlines()[0]}); "
            "restore it, or compare another revision"
        ) from None
    if not isinstance(tree, dict):
        raise OcmError(f"{path} of {revision.name}: expected names and values, found {tree!r}")
    return tree


def _leaves(tree: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """As DVC has them: lists are values; null is as good as absent."""
    for name, value in tree.items():
        key = (*above, str(name))
        if isinstance(value, Mapping):
            yield from _leaves(value, key)
        elif value is not None:
            yield key, value


def _numbers(old: _Side, new: _Side) -> tuple[Number, ...]:
    keys = dict.fromkeys([*old.numbers, *new.numbers])
    metrics = {key[0] for key in keys}
    spreads = {name for name in metrics if name.removesuffix(SPREAD) in metrics - {name}}
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


def _parameters(old: _Side, new: _Side) -> tuple[Parameter, ...]:
    """None for an experiment that is new or gone: it differs in all of them."""
    if not old.parameters or not new.parameters:
        return ()
    keys = dict.fromkeys([*old.parameters, *new.parameters])
    pairs = [(key, old.parameters.get(key), new.parameters.get(key)) for key in keys]
    return tuple(Parameter(".".join(key), a, b) for key, a, b in pairs if a != b)
