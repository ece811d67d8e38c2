"""Methods compared by one measure at one sampler and number of steps: which is better?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, isfinite, nan

import xarray as xr

from ocm_core.report.statistics.estimates import Estimate, estimate
from ocm_core.report.statistics.selections import methods_with_values

FIXED_VARIANCES = ("beta", "beta_tilde", "delta")  # kinds that neither learn nor estimate anything


@dataclass(frozen=True)
class MethodComparison:
    """The mean of every method, and how far any two of them are apart."""

    where: str  # "K = 10", or "DDPM, guidance 1.5"
    means: Mapping[str, float]  # of the methods that have values; NaN if one of its seeds is
    gap: Callable[[str, str], Estimate]  # the first less the second
    errors: Mapping[str, float]  # standard errors of the means

    @classmethod
    def of_seeds(cls, where: str, at: xr.DataArray) -> MethodComparison:
        """From values over (method, seed), in pairs that share their starting noise."""
        known = methods_with_values(at)
        means = {label: float(at.sel({"method": label}).mean(skipna=False)) for label in known}

        def gap(ours: str, rival: str) -> Estimate:
            return estimate(at.sel({"method": ours}) - at.sel({"method": rival}))

        errors = {label: estimate(at.sel({"method": label})).error for label in known}
        return cls(where, means, gap, errors)

    @classmethod
    def of_errors(cls, where: str, means: xr.DataArray, errors: xr.DataArray) -> MethodComparison:
        """From means and standard errors over (method), as if of independent runs."""
        known = methods_with_values(means)

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
        """NaN where the method has no value."""
        return self.means.get(label, nan)

    def best(self, among: Sequence[str] | None = None, *, highest: bool = False) -> str | None:
        """The method with the lowest finite mean (or the highest); None if no mean is finite."""
        labels = list(self.means) if among is None else [m for m in among if m in self.means]
        finite = [label for label in labels if isfinite(self.means[label])]
        choose = max if highest else min
        return choose(finite, key=lambda label: self.means[label]) if finite else None

    def independent_gap(self, ours: str, rival: str) -> Estimate:
        """The first less the second, with the noise of two independent runs."""
        noise = hypot(self.errors[ours], self.errors[rival])
        return Estimate(self.mean(ours) - self.mean(rival), noise)

    def numbers(self, ours: str, rival: str, gap: Estimate | None = None) -> str:
        """Both means and their difference, in words."""
        return (
            f"{ours} {self.mean(ours):.3g}, {rival} {self.mean(rival):.3g} "
            f"(difference {gap or self.gap(ours, rival)})"
        )

    def leader(self) -> str:
        """The method with the lowest mean, and how many others are within noise of it."""
        best = self.best()
        if best is None:
            return "none"
        ties = sum(self.gap(label, best).is_noise for label in self.means) - 1  # it ties itself
        others = f", {ties} more within noise" if ties > 0 else ""
        return f"{best} ({self.means[best]:.3g}{others})"
