"""The numbers that commits are compared by: metric → sampler → method → K<steps>.

Six significant digits: a diff should show changes, not the last bits of a float.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

Nested = dict[str, Any]


def nested(results: xr.Dataset) -> Nested:
    """Means over seeds; where an experiment has several scores, a metric per score."""
    found: Nested = {}
    for score in results["score"].values:
        one = results.sel(score=score)
        for name in [name for name in ("mmd", "clamped") if name in one]:
            _put_chains(found.setdefault(f"{name}_{score}_score", {}), one[name].mean("seed"))
        for method in one["method"].values if "covariance_error" in one else ():
            errors = one["covariance_error"].sel({"method": method})
            by_t = {f"t{t}": _number(errors.sel(t=t)) for t in one["t"].values}
            if any(value is not None for value in by_t.values()):
                found.setdefault(f"covariance_error_{score}_score", {})[str(method)] = by_t
    return found


def _put_chains(target: Nested, values: xr.DataArray) -> None:
    for sampler in values["sampler"].values:
        for method in values["method"].values:
            chain = values.sel({"sampler": sampler, "method": method})
            by_steps = {f"K{k}": _number(chain.sel(steps=k)) for k in values["steps"].values}
            known = {key: value for key, value in by_steps.items() if value is not None}
            if known:
                target.setdefault(str(sampler), {})[str(method)] = known


def _number(value: xr.DataArray) -> float | None:
    number = float(value)
    return None if np.isnan(number) else float(f"{number:.6g}")
