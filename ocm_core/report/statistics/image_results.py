"""The numbers of an image experiment, with the names and the small print that figures need.

A Fréchet distance is an FID only in Inception's features: in any other space it is called what it
is, so that nobody compares it with published ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import xarray as xr

from ocm_core.report.page.style import LineStyle, line_styles
from ocm_core.report.statistics import estimates as stats
from ocm_core.report.statistics.selections import LIKELIHOOD_SAMPLER, UNGUIDED, is_guided
from ocm_core.text import plural

PUBLISHED_SPACE = "inception"
_SPACES = {
    PUBLISHED_SPACE: "Inception v3",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "classifier": "a classifier trained on these data",
}


@dataclass(frozen=True)
class Measure:
    key: str  # the variable of the results
    name: str
    log: bool
    higher: bool = False  # is better


@dataclass(frozen=True)
class Cell:
    sampler: str
    method: str
    steps: int
    guidance: float
    mean: float  # NaN where a seed diverged
    deviation: float  # over seeds; NaN where there is one
    error: float

    def scaled(self, factor: float) -> Cell:
        return replace(
            self,
            mean=factor * self.mean,
            deviation=factor * self.deviation,
            error=factor * self.error,
        )


_AXES = ("sampler", "method", "steps", "guidance")


@dataclass(frozen=True)
class Evidence:
    results: xr.Dataset  # of one score
    kinds: Mapping[str, str]  # of the methods, by label
    space: str
    count: int  # of samples in a cell

    @cached_property
    def styles(self) -> dict[str, LineStyle]:
        return line_styles(self.kinds)

    @property
    def comparable(self) -> bool:
        """Whether distances and recall can stand beside published ones."""
        return self.space == PUBLISHED_SPACE

    @property
    def distance(self) -> str:
        return "FID" if self.comparable else "Fréchet distance"

    @property
    def space_name(self) -> str:
        return _SPACES.get(self.space, self.space)

    @property
    def guided(self) -> bool:
        return is_guided(self.results)

    @cached_property
    def measures(self) -> dict[str, Measure]:
        """Those of the samples that there are values of."""
        known = (
            Measure("fid", self.distance, log=True),
            Measure("kid", "KID", log=True),
            Measure("precision", "precision", log=False, higher=True),
            Measure("recall", "recall", log=False, higher=True),
        )
        return {m.key: m for m in known if self.has(m.key)}

    def has(self, key: str) -> bool:
        return key in self.results and bool(self.results[key].notnull().any())

    @cached_property
    def sampled(self) -> xr.DataArray:
        """Which cells were drawn at all, though a seed or every seed of them may have diverged."""
        names = [name for name in (*self.measures, "clamped") if name in self.results]
        known = [self.results[name].notnull().any("seed") for name in names]
        return xr.concat(known, "measure").any("measure")

    def mean(self, key: str) -> xr.DataArray:
        """Over (sampler, method, steps, guidance); of `nll` over (method, steps)."""
        values = self.results[key]
        return stats.mean(values) if "seed" in values.dims else values

    def error(self, key: str) -> xr.DataArray:
        """The standard error of the mean over seeds; of `nll`, over test images."""
        values = self.results[key]
        if "seed" in values.dims:
            return stats.standard_error(values)
        return self.results[f"{key}_se"]

    @property
    def small_print(self) -> str:
        """Where the measures of samples come from: to stand in every caption that shows one."""
        seeds = self.results.sizes["seed"]
        bars = ", ± one standard error" if seeds > 1 else ""
        return (
            f"Features of {self.space_name}; {self.count} samples a cell; "
            f"mean over {plural(seeds, 'seed')}{bars}."
        )

    def place(self, sampler: str, guidance: float) -> str:
        """`DDPM`, or `DDPM, guidance 1.5`."""
        return sampler.upper() + (f", guidance {guidance:g}" if self.guided else "")

    def cells(self, key: str) -> list[Cell]:
        """Every cell of the samples that has a value."""
        values = self.results[key]
        known = values.notnull().any("seed").transpose(*_AXES)
        numbers = (self.mean(key), stats.deviation(values), self.error(key))
        return _cells(known, [view.transpose(*_AXES) for view in numbers])

    def likelihood_cells(self) -> list[Cell]:
        """The bound as cells of unguided DDPM chains; its spread is the error over images."""
        place = {"sampler": [LIKELIHOOD_SAMPLER], "guidance": [UNGUIDED]}
        means, errors = (
            self.results[name].expand_dims(place).transpose(*_AXES) for name in ("nll", "nll_se")
        )
        return _cells(means.notnull(), [means, errors, errors])


def _cells(known: xr.DataArray, numbers: Sequence[xr.DataArray]) -> list[Cell]:
    names = [known[axis].values.tolist() for axis in _AXES]
    return [
        Cell(
            *(axis[i] for axis, i in zip(names, place, strict=True)),
            *(float(view.values[tuple(place)]) for view in numbers),
        )
        for place in np.argwhere(known.values)
    ]
