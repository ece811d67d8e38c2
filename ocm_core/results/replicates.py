"""Errors and differences: seeds, jackknife blocks and images are replicates of the same kind.

Seeds give n values of a measure; the error of their mean is s/√n. A jackknife gives the value v of
one seed and n values with a block left out, which deviate from their mean by d₁ … dₙ; the numbers
v - (n - 1) dᵢ have the mean v, and the error of their mean is that of the jackknife. Replicates of
two methods with the same names began with the same noise: their differences are taken in pairs, and
most of the noise cancels. Means over images come with their error; two are compared as independent
ones. A difference beyond `NOISE` of its standard errors is taken for real.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import hypot, inf, isfinite, nan

import numpy as np

from ocm_core.results.table import Row

NOISE = 2.0


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error; NaN where the error is not known."""

    mean: float
    error: float = nan

    def __neg__(self) -> Estimate:
        return Estimate(-self.mean, self.error)

    def __add__(self, shift: float) -> Estimate:
        return Estimate(self.mean + shift, self.error)

    def __str__(self) -> str:
        mean = "+" * (not self.mean < 0) + _short(self.mean, 2)
        return f"{mean} ± {_short(self.error, 1)}" if self.has_error else mean

    @property
    def is_finite(self) -> bool:
        """Tell whether the mean is a number."""
        return isfinite(self.mean)

    @property
    def has_error(self) -> bool:
        """Tell whether the error is known."""
        return isfinite(self.error)

    @property
    def is_noise(self) -> bool:
        """Tell whether zero is within the noise."""
        return abs(self.mean) <= NOISE * self.error

    @property
    def is_below(self) -> bool:
        """Tell whether the mean is below zero beyond noise."""
        return self.mean < -NOISE * self.error

    @property
    def clarity(self) -> float:
        """Return |mean| in standard errors; infinite where the mean is no number."""
        if not self.is_finite:
            return inf
        return abs(self.mean) / self.error if self.error > 0 else 0.0


@dataclass(frozen=True)
class Replicates:
    """The replicates of one measure at one place, or its mean with a known error."""

    values: Mapping[str, float]
    known: Estimate | None = None  # of a mean over images or points
    spread: float = nan  # over seeds

    @property
    def estimate(self) -> Estimate:
        """Return the mean with its error."""
        return self.known or mean_of(self.values.values())


def mean_of(values: Iterable[float]) -> Estimate:
    """Return the mean of independent values with its standard error."""
    numbers = np.array([*values], dtype=float)
    error = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else nan
    return Estimate(float(numbers.mean()), float(error))


def replicates(rows: Iterable[Row]) -> Replicates:
    """Return the replicates in the rows of one measure at one place."""
    seeds: dict[str, float] = {}
    without: dict[str, dict[str, float]] = {}
    for row in rows:
        if not row.replicate:
            error = nan if row.error is None else row.error
            return Replicates({}, Estimate(row.value, error))
        seed, _, block = row.replicate.partition("/")
        if block:
            without.setdefault(seed, {})[block] = row.value
        else:
            seeds[seed] = row.value
    if len(seeds) == 1 and without:
        [(seed, value)] = seeds.items()
        return Replicates(_pseudo_values(value, without[seed]))
    spread = float(np.std([*seeds.values()], ddof=1)) if len(seeds) > 1 else nan
    return Replicates(seeds, spread=spread)


def _pseudo_values(value: float, without: Mapping[str, float]) -> dict[str, float]:
    numbers = np.array([*without.values()])
    deviations = numbers - numbers.mean()
    pseudo = value - (len(numbers) - 1) * deviations
    return dict(zip(without, pseudo.tolist(), strict=True))


def difference(one: Replicates, other: Replicates) -> Estimate:
    """Return the first less the second: in pairs where they share replicates."""
    if one.known or other.known or [*one.values] != [*other.values]:
        return independent_difference(one, other)
    return mean_of(one.values[name] - other.values[name] for name in one.values)


def independent_difference(one: Replicates, other: Replicates) -> Estimate:
    """Return the first less the second, with the noise of two independent runs."""
    a, b = one.estimate, other.estimate
    return Estimate(a.mean - b.mean, hypot(a.error, b.error))


@dataclass(frozen=True)
class Comparison:
    """The entries of one column of a table: which is best, and how clearly."""

    where: str  # "nfe 10", or "DDPM, guidance 1.5"
    entries: Mapping[str, Replicates] = field(default_factory=dict)  # by label, e.g. of a method
    higher: bool = False  # is better

    def mean(self, label: str) -> float:
        """Return a mean; NaN where the label has no value."""
        return self.entries[label].estimate.mean if label in self.entries else nan

    def gap(self, one: str, other: str) -> Estimate:
        """Return the first less the second, in pairs where possible."""
        return difference(self.entries[one], self.entries[other])

    def independent_gap(self, one: str, other: str) -> Estimate:
        """Return the first less the second, with the noise of two independent runs."""
        return independent_difference(self.entries[one], self.entries[other])

    def ranked(self, among: Iterable[str] | None = None) -> list[str]:
        """Return the labels with a finite mean, the best first."""
        labels = self.entries if among is None else [m for m in among if m in self.entries]
        sign = -1.0 if self.higher else 1.0
        finite = [label for label in labels if isfinite(self.mean(label))]
        return sorted(finite, key=lambda label: sign * self.mean(label))

    def best(self, among: Iterable[str] | None = None) -> str | None:
        """Return the best label, or None where no mean is finite."""
        return next(iter(self.ranked(among)), None)

    def ties(self) -> list[str]:
        """Return the labels within noise of the best, without those that equal it."""
        best = self.best()
        if best is None:
            return []
        behind = [label for label in self.ranked() if self.mean(label) != self.mean(best)]
        return [label for label in behind if self.gap(label, best).is_noise]


def _short(value: float, digits: int) -> str:
    """Print so many digits, or all before the point where there are more: 104, not 1e+02."""
    return f"{value:.0f}" if 10 <= abs(value) < 1e6 else f"{value:.{digits}g}"
