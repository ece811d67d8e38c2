"""The best methods of an experiment, by measure, sampler and number of steps.

Lower is better for all measures here. Methods within two standard errors of the lowest, as two
independent runs would have them, share its place; where no spread was recorded the lowest has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot

from ocm_core.compare.recorded import Key, RecordedExperiment, spread_names
from ocm_core.compare.text import split_key
from ocm_core.report.statistics.estimates import Estimate

MEASURES = ("fid", "mmd", "nll_bpd")  # how the names of metrics begin


@dataclass(frozen=True)
class Best:
    """The methods that share the first place."""

    methods: tuple[str, ...]  # the lowest first
    value: float


@dataclass(frozen=True)
class BestRow:
    """The best methods by one metric and one sampler."""

    metric: str
    sampler: str
    cells: Mapping[str, Best]  # by place: K10, or K10 cfg1.5


def best(found: RecordedExperiment, chains: Mapping[str, str]) -> list[BestRow]:
    """`chains` names, for a sampler, the one whose row its methods compete in."""
    places: dict[tuple[str, str], dict[str, list[Key]]] = {}
    spreads = spread_names(found.numbers)
    for key in found.numbers:
        metric, sampler, _, where = split_key(key)
        if metric.startswith(MEASURES) and metric not in spreads:
            row = metric, chains.get(sampler, sampler)
            places.setdefault(row, {}).setdefault(where, []).append(key)
    return [
        BestRow(metric, sampler, {where: _best(found, keys) for where, keys in by_place.items()})
        for (metric, sampler), by_place in places.items()
    ]


def _best(found: RecordedExperiment, keys: list[Key]) -> Best:
    first, *others = sorted(keys, key=lambda key: found.numbers[key])
    near = [key for key in others if _gap(found, first, key).is_noise]
    return Best(tuple(split_key(key)[2] for key in [first, *near]), found.numbers[first])


def _gap(found: RecordedExperiment, first: Key, other: Key) -> Estimate:
    difference = found.numbers[other] - found.numbers[first]
    return Estimate(difference, hypot(found.error(first), found.error(other)))
