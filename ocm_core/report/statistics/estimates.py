"""Means over seeds, their standard errors, and two ways to compare methods.

Every method of a seed starts from the same noise. To tell which of two is better, differences are
taken seed by seed: most of the noise cancels. To say that two are as good as each other, the noise
is that of two independent runs: it is what a user who draws one set of samples would see.
A difference beyond `NOISE` of its standard errors is taken for real.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, inf, isfinite

import numpy as np
import xarray as xr

NOISE = 2.0


@dataclass(frozen=True)
class Estimate:
    mean: float
    error: float  # standard error; NaN where there is one seed

    def __neg__(self) -> Estimate:
        return Estimate(-self.mean, self.error)

    def __str__(self) -> str:
        mean = "+" * (not self.mean < 0) + _short(self.mean, 2)
        return f"{mean} ± {_short(self.error, 1)}" if self.has_error else mean

    @property
    def is_noise(self) -> bool:
        return abs(self.mean) <= NOISE * self.error

    @property
    def is_below(self) -> bool:
        return self.mean < -NOISE * self.error

    @property
    def clarity(self) -> float:
        """|mean| in standard errors; what is not finite is clearest of all."""
        if not self.is_finite:
            return inf
        return abs(self.mean) / self.error if self.error > 0 else 0.0

    @property
    def is_finite(self) -> bool:
        return isfinite(self.mean)

    @property
    def has_error(self) -> bool:
        return isfinite(self.error)


def _short(value: float, digits: int) -> str:
    """So many digits, or all before the point where it has more: 104, not 1e+02."""
    return f"{value:.0f}" if 10 <= abs(value) < 1e6 else f"{value:.{digits}g}"


def estimate(values: xr.DataArray) -> Estimate:
    numbers = np.asarray(values, dtype=float)
    count = len(numbers)
    error = numbers.std(ddof=1) / np.sqrt(count) if count > 1 else np.nan
    return Estimate(float(numbers.mean()), float(error))


def independent_gap(ours: xr.DataArray, theirs: xr.DataArray) -> Estimate:
    """ours - theirs, with the error that two independent sets of runs would have."""
    one, other = estimate(ours), estimate(theirs)
    return Estimate(one.mean - other.mean, hypot(one.error, other.error))


def mean(values: xr.DataArray) -> xr.DataArray:
    """Over seeds, for whole arrays at once: NaN if one of them is."""
    return values.mean("seed", skipna=False)


def deviation(values: xr.DataArray) -> xr.DataArray:
    """The spread over seeds; NaN where there is one."""
    if values.sizes["seed"] == 1:
        return xr.full_like(values.isel(seed=0, drop=True), np.nan)
    return values.std("seed", ddof=1, skipna=False)


def standard_error(values: xr.DataArray) -> xr.DataArray:
    """Of the mean over seeds; NaN where there is one."""
    return deviation(values) / float(np.sqrt(values.sizes["seed"]))
