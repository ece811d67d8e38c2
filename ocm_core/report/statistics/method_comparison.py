"""Methods compared by one measure at one place: which is better, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, isfinite, nan

import xarray as xr

from ocm_core.report.page.verdicts import Case, Verdict
from ocm_core.report.statistics.estimates import Estimate, estimate

FIXED_VARIANCES = ("beta", "beta_tilde", "delta")


@dataclass(frozen=True)
class Contest:
    where: str
    means: Mapping[str, float]  # of the methods that have values; NaN if one of its seeds is
    gap: Callable[[str, str], Estimate]  # the first less the second
    errors: Mapping[str, float]  # standard errors of the means

    @classmethod
    def of_seeds(cls, where: str, at: xr.DataArray) -> Contest:
        """From values over (method, seed), in pairs that share their starting noise."""
        known = with_values(at)
        means = {label: float(at.sel({"method": label}).mean(skipna=False)) for label in known}

        def gap(ours: str, rival: str) -> Estimate:
            return estimate(at.sel({"method": ours}) - at.sel({"method": rival}))

        errors = {label: estimate(at.sel({"method": label})).error for label in known}
        return cls(where, means, gap, errors)

    @classmethod
    def of_errors(cls, where: str, means: xr.DataArray, errors: xr.DataArray) -> Contest:
        """From means and standard errors over (method), as if of independent runs."""
        known = with_values(means)

        def gap(ours: str, rival: str) -> Estimate:
            one, other = ({"method": ours}, {"method": rival})
            noise = hypot(float(errors.sel(one)), float(errors.sel(other)))
            return Estimate(float(means.sel(one) - means.sel(other)), noise)

        of_method = [{"method": label} for label in known]
        return cls(
            where,
            {label: float(means.sel(at)) for label, at in zip(known, of_method, strict=True)},
            gap,
            {label: float(errors.sel(at)) for label, at in zip(known, of_method, strict=True)},
        )

    def mean(self, label: str) -> float:
        return self.means.get(label, nan)

    def best(self, among: Sequence[str] | None = None, *, highest: bool = False) -> str | None:
        """The lowest of those that are numbers; none if there are none."""
        labels = list(self.means) if among is None else [m for m in among if m in self.means]
        finite = [label for label in labels if isfinite(self.means[label])]
        choose = max if highest else min
        return choose(finite, key=lambda label: self.means[label]) if finite else None

    def beats(self, ours: str, rival: str, *, higher: bool = False) -> Case:
        gap = self.gap(ours, rival)
        return Case(self.where, self.numbers(ours, rival), below(-gap if higher else gap))

    def apart(self, ours: str, rival: str) -> Estimate:
        """The difference with the noise of two independent runs, to tell what is near."""
        noise = hypot(self.errors[ours], self.errors[rival])
        return Estimate(self.mean(ours) - self.mean(rival), noise)

    def numbers(self, ours: str, rival: str, gap: Estimate | None = None) -> str:
        return (
            f"{ours} {self.mean(ours):.3g}, {rival} {self.mean(rival):.3g} "
            f"(difference {gap or self.gap(ours, rival)})"
        )

    def leader(self) -> str:
        """The lowest, and how many others cannot be told from it."""
        best = self.best()
        if best is None:
            return "none"
        ties = sum(self.gap(label, best).is_noise for label in self.means) - 1  # it ties itself
        others = f", {ties} more within noise" if ties > 0 else ""
        return f"{best} ({self.means[best]:.3g}{others})"


def below(gap: Estimate) -> Verdict:
    """Whether the gap is below zero: without an error nobody can tell."""
    if not gap.is_finite:
        return Verdict.FAILS
    if not gap.has_error:
        return Verdict.UNDECIDED
    if gap.is_below:
        return Verdict.HOLDS
    return Verdict.NOISE if gap.is_noise else Verdict.FAILS


def worst(where: str, found: Sequence[Case | None]) -> Iterator[Case]:
    """Several places as one case, with the verdict of the worst."""
    cases = [case for case in found if case is not None]
    if cases:
        numbers = "; ".join(f"{case.where}: {case.numbers}" for case in cases)
        yield Case(where, numbers, max(case.verdict for case in cases))


def with_values(values: xr.DataArray) -> list[str]:
    """The methods that have any."""
    return [str(label) for label in values.dropna("method", how="all")["method"].values]
