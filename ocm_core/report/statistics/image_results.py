"""The results of an image experiment, with what figures and tables say about them.

Distances between features of another network than Inception are no FID, and are not called so:
nobody should compare them with published ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite

import numpy as np
import xarray as xr

from ocm_core.report.statistics import estimates
from ocm_core.report.statistics.head_families import HeadFamilies, HeadFamily, claimed_family
from ocm_core.report.statistics.method_comparison import FIXED_VARIANCES
from ocm_core.report.statistics.selections import (
    LIKELIHOOD_SAMPLER,
    UNGUIDED,
    is_guided,
    methods_with_values,
)
from ocm_core.text import plural

PUBLISHED_SPACE = "inception"
SAMPLE_MEASURES = ("fid", "kid", "precision", "recall")  # in the features of one space
_SPACES = {
    PUBLISHED_SPACE: "Inception v3",
    "efficientnet_lite0": "EfficientNet-Lite0",
    "classifier": "a classifier trained on these data",
}


def distance_name(space: str) -> str:
    """A Fréchet distance is an FID only between features of Inception."""
    return "FID" if space == PUBLISHED_SPACE else "Fréchet distance"


@dataclass(frozen=True)
class SampleMeasure:
    """What is measured of samples: a distance, precision or recall."""

    key: str  # the variable of the dataset
    name: str
    log: bool
    higher: bool = False  # higher is better


@dataclass(frozen=True)
class CellMean:
    """One measure of one sampler, method, K and guidance scale, over seeds."""

    sampler: str
    method: str
    steps: int
    guidance: float
    mean: float  # NaN where a seed diverged
    deviation: float  # over seeds; NaN where there is one
    error: float

    def scaled(self, factor: float) -> CellMean:
        return replace(
            self,
            mean=factor * self.mean,
            deviation=factor * self.deviation,
            error=factor * self.error,
        )


_AXES = ("sampler", "method", "steps", "guidance")


@dataclass(frozen=True)
class ImageResults:
    """Means, errors and names of everything that was measured with one score network."""

    dataset: xr.Dataset  # over sampler, method, steps, guidance and seed
    families: HeadFamilies
    space: str  # of the features in which samples are compared with the data
    count: int  # of samples in a cell
    ending: str = ""  # of the ids of figures and tables, where another space has its own

    def beside(self, space: str) -> ImageResults:
        """What was measured in another space, under the names that the page's own has."""
        names = {f"{key}_{space}": key for key in SAMPLE_MEASURES}
        theirs = {name: key for name, key in names.items() if name in self.dataset}
        dataset = self.dataset.drop_vars(SAMPLE_MEASURES, errors="ignore").rename(theirs)
        return replace(self, dataset=dataset, space=space, ending=f"-{space}")

    @property
    def comparable(self) -> bool:
        """Whether distances and recall can stand beside published ones."""
        return self.space == PUBLISHED_SPACE

    @property
    def distance(self) -> str:
        return distance_name(self.space)

    @property
    def space_name(self) -> str:
        return _SPACES.get(self.space, self.space)

    @property
    def guided(self) -> bool:
        return is_guided(self.dataset)

    @cached_property
    def measures(self) -> dict[str, SampleMeasure]:
        """Those that have values, by key."""
        known = (
            SampleMeasure("fid", self.distance, log=True),
            SampleMeasure("kid", "KID", log=True),
            SampleMeasure("precision", "precision", log=False, higher=True),
            SampleMeasure("recall", "recall", log=False, higher=True),
        )
        return {m.key: m for m in known if self.has(m.key)}

    def has(self, key: str) -> bool:
        """Whether a variable has any value."""
        return key in self.dataset and bool(self.dataset[key].notnull().any())

    def heads(self, key: str) -> HeadFamily:
        """The family that claims by this variable are about."""
        measured = methods_with_values(self.mean(key)) if key in self.dataset else []
        return claimed_family(self.families, measured)

    @cached_property
    def sampled(self) -> xr.DataArray:
        """Which cells were sampled, even if the samples of some or all seeds are not finite."""
        names = [name for name in (*self.measures, "clamped") if name in self.dataset]
        known = [self.dataset[name].notnull().any("seed") for name in names]
        return xr.concat(known, "measure").any("measure")

    def mean(self, key: str) -> xr.DataArray:
        """Over (sampler, method, steps, guidance); of `nll` over (method, steps)."""
        values = self.dataset[key]
        return estimates.mean(values) if "seed" in values.dims else values

    def error(self, key: str) -> xr.DataArray:
        """The standard error of the mean over seeds; of `nll`, over test images."""
        values = self.dataset[key]
        if "seed" in values.dims:
            return estimates.standard_error(values)
        return self.dataset[f"{key}_se"]

    @property
    def small_print(self) -> str:
        """How measures of samples were made: a part of every caption that shows one."""
        seeds = self.dataset.sizes["seed"]
        bars = ", ± one standard error" if seeds > 1 else ""
        return (
            f"Features of {self.space_name}; {self.count} samples a cell; "
            f"mean over {plural(seeds, 'seed')}{bars}."
        )

    def place(self, sampler: str, guidance: float) -> str:
        """`DDPM`, or `DDPM, guidance 1.5`."""
        return sampler.upper() + (f", guidance {guidance:g}" if self.guided else "")

    def cells(self, key: str) -> list[CellMean]:
        """Every cell of the samples that has a value."""
        values = self.dataset[key]
        known = values.notnull().any("seed").transpose(*_AXES)
        numbers = (self.mean(key), estimates.deviation(values), self.error(key))
        return _cells(known, [view.transpose(*_AXES) for view in numbers])

    def likelihood_cells(self) -> list[CellMean]:
        """The bound as cells of unguided DDPM chains; its spread is the error over images."""
        place = {"sampler": [LIKELIHOOD_SAMPLER], "guidance": [UNGUIDED]}
        means, errors = (
            self.dataset[name].expand_dims(place).transpose(*_AXES) for name in ("nll", "nll_se")
        )
        return _cells(means.notnull(), [means, errors, errors])


def best_fixed(cells: Sequence[CellMean]) -> CellMean | None:
    """The lowest that a fixed variance gets anywhere."""
    finite = [cell for cell in cells if cell.method in FIXED_VARIANCES and isfinite(cell.mean)]
    return min(finite, key=lambda cell: cell.mean, default=None)


def first_cell(
    cells: Sequence[CellMean], methods: Collection[str], distance: float
) -> CellMean | None:
    """The cell with the fewest steps that is as low, whatever its sampler and guidance."""
    near = [cell for cell in cells if cell.method in methods and cell.mean <= distance]
    return min(near, key=lambda cell: (cell.steps, cell.mean), default=None)


def _cells(known: xr.DataArray, numbers: Sequence[xr.DataArray]) -> list[CellMean]:
    names = [known[axis].values.tolist() for axis in _AXES]
    return [
        CellMean(
            *(axis[i] for axis, i in zip(names, place, strict=True)),
            *(float(view.values[tuple(place)]) for view in numbers),
        )
        for place in np.argwhere(known.values)
    ]
