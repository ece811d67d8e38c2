"""Tables of the toy page: what each method is and costs, and how often a variance was clamped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ocm_core.report.page import Table

if TYPE_CHECKING:
    from ocm_core.params.schema import Method

_SOURCES = {
    "beta": "the variance of the forward step",
    "beta_tilde": "the variance of the forward step's reversal, x₀ being known",
    "delta": "none: x₀ is taken to be known",
    "analytic": "one number per t, from the mean square of the predicted noise",
    "iddpm": "a head between beta and beta_tilde, fitted to the likelihood bound",
    "npr": "a head fitted to the squared residual of the predicted noise",
    "sn": "a head fitted to the squared noise, less the squared prediction",
    "ocm": "a head fitted to random probes of the score's Jacobian",
    "rademacher": "random probes of the score's Jacobian, at every step",
    "exact_diag": "the diagonal of the score's Jacobian, at every step",
    "exact_full": "the whole Jacobian of the score, at every step",
}


def methods(
    chosen: Mapping[str, Method], head_parameters: Mapping[str, int], dimensions: int
) -> Table:
    rows = [
        (
            label,
            _SOURCES.get(method.kind, method.kind),
            head_parameters.get(label),
            _extra_work(method, dimensions),
        )
        for label, method in chosen.items()
    ]
    columns = ("method", "where its covariance comes from", "parameters", "extra work per step")
    return Table("methods", columns, tuple(rows))


def _extra_work(method: Method, dimensions: int) -> str:
    if method.kind == "rademacher":
        return _passes(int(method.options["probes"]))
    if method.kind in ("exact_diag", "exact_full"):
        return _passes(dimensions)
    return "its head" if method.needs == "head" else "none"


def _passes(count: int) -> str:
    return f"{count} backward pass{'' if count == 1 else 'es'}"


def clamped(results: xr.Dataset) -> Table | None:
    """The share of variances that were negative, in percent; none if all were fine."""
    shares = 100 * results["clamped"].mean("seed")
    steps = [int(k) for k in shares["steps"].values]
    rows = []
    for sampler in shares["sampler"].values:
        for score in shares["score"].values:
            for method in shares["method"].values:
                chain = shares.sel({"sampler": sampler, "score": score, "method": method})
                if bool((chain > 0).any()):
                    rows.append((str(sampler), str(score), str(method), *_rounded(chain)))
    columns = ("sampler", "score", "method", *(f"K = {k}" for k in steps))
    return Table("clamped", columns, tuple(rows)) if rows else None


def _rounded(chain: xr.DataArray) -> list[float | None]:
    return [float(f"{v:.2g}") if np.isfinite(v) else None for v in chain.values.tolist()]
