"""The numbers that commits are compared by: metric → sampler → method → K<steps> → cfg<scale>.

Six significant digits: a diff should show changes, not the last bits of a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import xarray as xr
from numpy import ndarray

from ocm_core.report.statistics import estimates
from ocm_core.report.statistics.image_results import SAMPLE_MEASURES
from ocm_core.report.statistics.selections import (
    is_guided,
    is_images,
    one_score,
    ordered,
    unguided,
)

Nested = dict[str, Any]

_CHAIN = ("sampler", "method", "steps")
_PREFIXES = {"steps": "K", "t": "t", "guidance": "cfg"}


def nested(results: xr.Dataset) -> Nested:
    """Means over seeds; what is not defined, or diverged, is absent."""
    known = ordered(results)
    return _images(one_score(known)) if is_images(known) else _toys(unguided(known))


def _images(results: xr.Dataset) -> Nested:
    """A level of guidance scales where there are any, and spreads where there are seeds."""
    guided = is_guided(results)
    axes = (*_CHAIN, "guidance") if guided else _CHAIN
    values = results if guided else unguided(results)
    found: Nested = {}
    measured = [str(name) for name in results if str(name).startswith(SAMPLE_MEASURES)]
    for name in [*measured, *(["clamped"] if "clamped" in results else [])]:
        _put(found, name, estimates.mean(values[name]), axes)
        if name in measured:
            _put(found, f"{name}_std", estimates.deviation(values[name]), axes)
    return found | _bounds(values)


def _bounds(results: xr.Dataset, score: str = "") -> Nested:
    """Each chain under the name of a sampler."""
    found: Nested = {}
    for name, of in ((f"nll_bpd{score}", "nll"), (f"nll_bpd{score}_se", "nll_se")):
        if of in results:
            _put(found, name, results[of].rename(chain="sampler"), _CHAIN)
    return found


def _toys(results: xr.Dataset) -> Nested:
    """A metric per score."""
    found: Nested = {}
    for score in results["score"].values:
        one = results.sel(score=score)
        for name in [name for name in ("mmd", "clamped") if name in one]:
            _put(found, f"{name}_{score}_score", estimates.mean(one[name]), _CHAIN)
        if "mmd" in one:
            _put(found, f"mmd_{score}_score_std", estimates.deviation(one["mmd"]), _CHAIN)
        if "covariance_error" in one:
            name = f"covariance_error_{score}_score"
            _put(found, name, one["covariance_error"], ("method", "t"))
        found |= _bounds(one, f"_{score}_score")
    return found


def _put(found: Nested, name: str, values: xr.DataArray, axes: Sequence[str]) -> None:
    ordered = values.transpose(*axes)
    tree = _tree(ordered.values, [_keys(ordered[axis]) for axis in axes])
    if tree:
        found[name] = tree


def _keys(axis: xr.DataArray) -> list[str]:
    prefix = _PREFIXES.get(str(axis.name))
    return [str(v) if prefix is None else f"{prefix}{v:g}" for v in axis.values.tolist()]


def _tree(values: ndarray, keys: Sequence[Sequence[str]]) -> Nested | float | None:
    if not keys:
        return None if isnan(values) else float(f"{values:.6g}")
    branches = {key: _tree(part, keys[1:]) for key, part in zip(keys[0], values, strict=True)}
    return {key: branch for key, branch in branches.items() if branch is not None} or None
