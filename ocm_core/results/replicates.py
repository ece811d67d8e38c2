"""Errors and differences: seeds, jackknife blocks and images are replicates of the same kind.

Seeds give n values of a measure; the error of their mean is s/√n. A jackknife gives the value v of
one seed and n values with a block left out, which deviate from their mean by d₁ … dₙ; the numbers
v - (n - 1) dᵢ have the mean v, and the error of their mean is that of the jackknife. Replicates of
two methods with the same names began with the same noise, which cancels in differences of pairs.
Means over images come with their error, and are compared as independent ones.
"""

from collections.abc import Iterable, Mapping
from math import hypot, inf, isfinite, isnan, nan
from typing import Any, NamedTuple

import numpy as np

from ocm_core.results.table import Results, Row

NOISE = 2.0  # standard errors; a difference beyond them is taken for real
PLACE = ("measure", "score", "sampler", "timesteps", "method", "nfe", "guidance")


class Estimate(NamedTuple):
    """A mean with its standard error; NaN where the error is not known."""

    mean: float
    error: float = nan

    def __str__(self) -> str:
        mean = "+" * (not self.mean < 0) + _short(self.mean, 2)
        return f"{mean} ± {_short(self.error, 1)}" if self.has_error else mean

    @property
    def is_finite(self) -> bool:
        return isfinite(self.mean)

    @property
    def has_error(self) -> bool:
        return isfinite(self.error)

    @property
    def is_noise(self) -> bool:
        """Tell whether zero is within the noise."""
        return abs(self.mean) <= NOISE * self.error

    @property
    def clarity(self) -> float:
        """Return |mean| in standard errors; infinite where the mean is no number."""
        if not self.is_finite:
            return inf
        return abs(self.mean) / self.error if self.error > 0 else 0.0


class Replicates(NamedTuple):
    """The replicates of one measure at one place, or its mean with a known error."""

    values: Mapping[str, float]
    known: Estimate | None = None  # of a mean over images or points
    spread: float = nan  # over seeds

    @property
    def estimate(self) -> Estimate:
        return self.known or mean_of(self.values.values())


def mean_of(values: Iterable[float]) -> Estimate:
    """Return the mean of independent values with its standard error."""
    numbers = np.array([*values], dtype=float)
    error = numbers.std(ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else nan
    return Estimate(float(numbers.mean()), float(error))


def replicates(rows: Iterable[Row]) -> Replicates:
    """Return the replicates in the rows of one measure at one place."""
    seeds, without = dict[str, float](), dict[str, dict[str, float]]()
    for row in rows:
        if not row.replicate:
            return Replicates({}, Estimate(row.value, nan if row.error is None else row.error))
        seed, _, block = row.replicate.partition("/")
        (without.setdefault(seed, {}) if block else seeds)[block or seed] = row.value
    if len(seeds) == 1 and without:
        [(seed, value)] = seeds.items()
        numbers = np.array([*without[seed].values()])
        pseudo = value - (len(numbers) - 1) * (numbers - numbers.mean())
        return Replicates(dict(zip(without[seed], pseudo.tolist(), strict=True)))
    spread = float(np.std([*seeds.values()], ddof=1)) if len(seeds) > 1 else nan
    return Replicates(seeds, spread=spread)


def by_place(results: Results) -> dict[tuple[Any, ...], Replicates]:
    """Return the replicates of every measure at every place; see `PLACE` for the keys."""
    return {place: replicates(rows) for place, rows in results.groups(*PLACE).items()}


def nested(results: Results) -> dict[str, Any]:
    """Return means for `dvc metrics diff`: measure → sampler → method → K<nfe> → cfg<guidance>.

    Spreads over seeds and errors stand beside them, to six digits. What diverged is absent.
    """
    found: dict[str, Any] = {}
    several, guided = len(results.distinct("score")) > 1, results.is_guided
    for (measure, score, sampler, timesteps, method, nfe, scale), here in by_place(results).items():
        if measure.startswith("bits_per_dim_"):  # parts and differences of a bound
            continue
        name = f"{measure}_{score}_score" if several and score else measure
        t = timesteps if timesteps.isdigit() else ""
        cfg = f"cfg{scale:g}" if guided and scale is not None else ""
        path = [sampler or (not t and timesteps), method, t and f"t{t}", nfe and f"K{nfe}", cfg]
        numbers = {name: here.estimate.mean}
        if here.known:
            numbers[f"{name}_se"] = here.known.error
        elif measure != "clamped":
            numbers[f"{name}_std"] = here.spread
        for key, value in numbers.items():
            *branches, leaf = [key, *filter(None, path)]
            if not isnan(value):
                tree = found
                for branch in branches:
                    tree = tree.setdefault(branch, {})
                tree[leaf] = float(f"{value:.6g}")
    return found


def difference(one: Replicates, other: Replicates, *, paired: bool = True) -> Estimate:
    """Return the first less the second: in pairs where they share replicates, if `paired`."""
    if paired and not (one.known or other.known) and [*one.values] == [*other.values]:
        return mean_of(one.values[name] - other.values[name] for name in one.values)
    a, b = one.estimate, other.estimate
    return Estimate(a.mean - b.mean, hypot(a.error, b.error))


class Comparison(NamedTuple):
    """The entries of one column of a table: which is best, and how clearly."""

    where: str  # "nfe 10", or "DDPM, guidance 1.5"
    entries: Mapping[str, Replicates] = {}  # by label, e.g. of a method
    higher: bool = False  # is better

    def mean(self, label: str) -> float:
        """Return a mean; NaN where the label has no value."""
        return self.entries[label].estimate.mean if label in self.entries else nan

    def gap(self, one: str, other: str, *, paired: bool = True) -> Estimate:
        """Return the first less the second, in pairs where possible and wanted."""
        return difference(self.entries[one], self.entries[other], paired=paired)

    def ranked(self, among: Iterable[str] | None = None) -> list[str]:
        """Return the labels with a finite mean, the best first."""
        sign, labels = -1.0 if self.higher else 1.0, self.entries if among is None else among
        finite = (label for label in labels if isfinite(self.mean(label)))
        return sorted(finite, key=lambda label: sign * self.mean(label))

    def best(self, among: Iterable[str] | None = None) -> str | None:
        """Return the best label, or None where no mean is finite."""
        return next(iter(self.ranked(among)), None)

    def ties(self) -> list[str]:
        """Return the labels within noise of the best, without those that equal it."""
        best, *others = self.ranked() or [""]
        behind = [label for label in others if self.mean(label) != self.mean(best)]
        return [label for label in behind if self.gap(label, best).is_noise]


def _short(value: float, digits: int) -> str:
    """Print so many digits, or all before the point where there are more: 104, not 1e+02."""
    return f"{value:.0f}" if 10 <= abs(value) < 1e6 else f"{value:.{digits}g}"
