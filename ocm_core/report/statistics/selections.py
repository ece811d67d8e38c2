"""Which part of the results a figure or a file is about: one score, no guidance, one chain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import log
from typing import TYPE_CHECKING, TypeVar

import xarray as xr

from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Sampler

XarrayResults = TypeVar("XarrayResults", xr.Dataset, xr.DataArray)

UNGUIDED = 1.0
LIKELIHOOD_SAMPLER = "ddpm"  # the first chain's: the bound exists for DDPM, without guidance
HEADLINE_STEPS = (5, 10)
SHEET_STEPS = (5, 10, 25)  # of the samples that are seen first: where methods differ
TABLE_STEPS = (5, 10, 25, 100)


def is_images(results: xr.Dataset) -> bool:
    """Whether they are of images: those of mixtures have distances between points instead."""
    return "mmd" not in results and "covariance_error" not in results


def ordered(results: xr.Dataset) -> xr.Dataset:
    """With steps and guidance rising; the parameters list them in any order."""
    return results.sortby([axis for axis in ("steps", "guidance") if axis in results.dims])


def one_score(results: xr.Dataset) -> xr.Dataset:
    """Without the axis of scores: an image experiment has one score network."""
    scores = results["score"].values.tolist()
    if len(scores) != 1:
        raise OcmError(
            f"network.scores: the report of an image experiment shows one score, not {scores}; "
            "make an experiment of each"
        )
    return results.squeeze("score", drop=True)


def first_chain(results: xr.Dataset) -> xr.Dataset:
    """With the bound of the first of its chains alone: the one that claims and tables are about."""
    return results.isel(chain=0, drop=True) if "chain" in results.dims else results


def unguided(results: XarrayResults) -> XarrayResults:
    """Without the axis of guidance scales, for experiments that have none."""
    return results.squeeze("guidance", drop=True) if "guidance" in results.dims else results


def is_guided(results: xr.Dataset | xr.DataArray) -> bool:
    return "guidance" in results.dims and results["guidance"].values.tolist() != [UNGUIDED]


def methods_with_values(values: xr.DataArray) -> list[str]:
    """The labels that have a value anywhere."""
    return [str(label) for label in values.dropna("method", how="all")["method"].values]


def headline_steps(sampled: Collection[int]) -> list[int]:
    """The short chains that summaries talk about: K = 5 and 10, or the shortest there is."""
    return [k for k in HEADLINE_STEPS if k in sampled] or [min(sampled)]


def nearest_steps(wanted: Collection[int], sampled: Collection[int]) -> list[int]:
    """The sampled K that are nearest to those that are asked for, by their ratio."""
    return sorted({min(sampled, key=lambda k: (abs(log(k / w)), k)) for w in wanted if sampled})


def chain_names(samplers: Mapping[str, Sampler]) -> dict[str, str]:
    """By label, the first sampler that takes the same steps, maybe with other methods and K.

    Parameters list such samplers apart where some methods are too dear for every K.
    """
    firsts: dict[str, str] = {}
    return {
        label: firsts.setdefault(repr(sampler.model_dump(exclude={"grids", "methods"})), label)
        for label, sampler in samplers.items()
    }


def by_chain(results: xr.Dataset, names: Mapping[str, str]) -> xr.Dataset:
    """With the samplers of one chain merged (see `chain_names`): each has cells of its own."""
    sampled = [name for name in results.data_vars if "sampler" in results[name].dims]
    parts: dict[str, xr.Dataset] = {}
    present = results["sampler"].values.tolist() if sampled else ()
    for label, name in names.items():
        if label not in present:
            continue
        one = results[sampled].sel(sampler=label, drop=True)
        parts[name] = parts[name].combine_first(one) if name in parts else one
    if not parts:
        return results
    whole = xr.concat(parts.values(), xr.Variable("sampler", list(parts)))
    return results.drop_dims("sampler").merge(whole)
