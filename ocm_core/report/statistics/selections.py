"""Views of the results that pages and files share: of one score, without guidance, by chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import xarray as xr

from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from ocm_core.schema.experiment import SamplerParams

Results = TypeVar("Results", xr.Dataset, xr.DataArray)

UNGUIDED = 1.0
LIKELIHOOD_SAMPLER = "ddpm"  # the bound exists for DDPM chains, without guidance


def is_images(results: xr.Dataset) -> bool:
    """Whether samples were judged by features or images by their likelihood."""
    return "fid" in results or "nll" in results


def ordered(results: xr.Dataset) -> xr.Dataset:
    """By steps and guidance, which come in the order of the parameters."""
    return results.sortby([axis for axis in ("steps", "guidance") if axis in results.dims])


def one_score(results: xr.Dataset) -> xr.Dataset:
    """Without the axis of scores: image experiments have one, and their numbers do not name it."""
    scores = results["score"].values.tolist()
    if len(scores) != 1:
        raise OcmError(
            f"network.scores: the report of an image experiment shows one score, not {scores}; "
            "make an experiment of each"
        )
    return results.squeeze("score", drop=True)


def unguided(results: Results) -> Results:
    """Without the axis of guidance scales, for experiments that have none."""
    return results.squeeze("guidance", drop=True) if "guidance" in results.dims else results


def is_guided(results: xr.Dataset | xr.DataArray) -> bool:
    return "guidance" in results.dims and results["guidance"].values.tolist() != [UNGUIDED]


def chain_names(samplers: Mapping[str, SamplerParams]) -> dict[str, str]:
    """Samplers that differ only in their methods and K are one, by the name of the first."""
    firsts: dict[str, str] = {}
    return {
        label: firsts.setdefault(repr(sampler.model_dump(exclude={"grids", "methods"})), label)
        for label, sampler in samplers.items()
    }


def by_chain(results: xr.Dataset, names: Mapping[str, str]) -> xr.Dataset:
    """With the samplers of one name as one, in the order of `names`.

    Each has cells that the others lack.
    """
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
