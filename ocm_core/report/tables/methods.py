"""The methods of an experiment: what each one is, and how often its variances were clamped."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

import xarray as xr

from ocm_core.report.page.document import DataTable
from ocm_core.report.statistics.head_families import (
    HeadFamilies,
    families_together,
    relative_heads,
)
from ocm_core.report.statistics.selections import is_guided, unguided

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment, HeadForm, MethodParams

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


_BASELINES = {
    "gaussian": "the variance of a Gaussian",
    "moments": "the table of analytic",
    "target": "the mean of its target",
}
_LINKS = {"identity": "", "positive": ", and positive", "tapered": ", positive, tapered at small t"}


def method_table(
    experiment: Experiment, head_parameters: Mapping[str, int], families: HeadFamilies
) -> DataTable:
    relative = relative_heads(families)
    rows = []
    for label in families_together(experiment.methods, families):
        method = experiment.methods[label]
        source = _SOURCES.get(method.kind, method.kind)
        if label in relative:
            source += _relation(experiment.head.form(method))
        work = _extra_work(method, prod(experiment.shape))
        rows.append((label, source, head_parameters.get(label), work))
    columns = ("method", "where its covariance comes from", "parameters", "extra work per step")
    return DataTable("methods", columns, tuple(rows))


def _relation(form: HeadForm) -> str:
    """In what a head differs from those of the papers."""
    return f"; relative to {_BASELINES[form.baseline]}{_LINKS[form.link]}"


def _extra_work(method: MethodParams, dimensions: int) -> str:
    if method.kind == "rademacher":
        return _passes(int(method.options["probes"]))
    if method.kind in ("exact_diag", "exact_full"):
        return _passes(dimensions)
    return "its head" if method.needs == "head" else "none"


def _passes(count: int) -> str:
    return f"{count} backward pass{'' if count == 1 else 'es'}"


def clamped_shares(values: xr.DataArray) -> DataTable | None:
    """The share of variances that were out of range, in percent; none if all were fine."""
    shares = 100 * (values if is_guided(values) else unguided(values)).mean("seed")
    shares = shares.dropna("steps", how="all")
    places = [name for name in ("sampler", "score", "guidance", "method") if name in shares.dims]
    stacked = shares.stack(place=places).transpose("place", "steps")
    touched = stacked.isel(place=(stacked > 0).any("steps"))
    rows = [
        (*place, *map(_rounded, row))
        for place, row in zip(touched["place"].values.tolist(), touched.values, strict=True)
    ]
    columns = (*places, *(f"K = {k}" for k in shares["steps"].values))
    return DataTable("clamped", columns, tuple(rows)) if rows else None


def _rounded(share: float) -> float:
    return float(f"{share:.2g}")
