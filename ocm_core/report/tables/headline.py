"""The small table that a visitor sees first: the best of ours, the published head, a fixed
variance and the best solver, at a few budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import xarray as xr

from ocm_core.report.page.result_table import ResultGroup, ResultTable
from ocm_core.report.statistics.frontier import Frontier, Route
from ocm_core.report.statistics.image_results import ImageResults
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.selections import (
    LIKELIHOOD_SAMPLER,
    TABLE_STEPS,
    methods_with_values,
    nearest_steps,
)
from ocm_core.report.tables.ranked import MARKS, ranked_group

OURS, SOLVER = "best of ours", "best solver"
FIXED = "beta_tilde"
_MEASURES = ("fid", "recall")


def headline(
    results: ImageResults, bounds: xr.Dataset, chains: Mapping[str, str], rivals: frozenset[str]
) -> ResultTable | None:
    """`chains` has the kind of each chain of the bound. None where nothing was measured."""
    budgets = _budgets(results)
    found = [
        *_of_samples(results, budgets, rivals),
        *bound_groups(bounds, chains, budgets, results.heads("nll").label("ocm")),
    ]
    groups = tuple(group for group in found if group.rows)
    columns = tuple(f"K = {k}" for k in budgets)
    return (
        ResultTable("headline", MARKS, "network evaluations", columns, groups) if groups else None
    )


def _budgets(results: ImageResults) -> list[int]:
    key = next((key for key in (*_MEASURES, "nll") if results.has(key)), None)
    if key is None:
        return []
    known = results.dataset[key].dropna("steps", how="all")["steps"].values.tolist()
    return nearest_steps(TABLE_STEPS, known)


def _of_samples(
    results: ImageResults, budgets: Sequence[int], rivals: frozenset[str]
) -> Iterator[ResultGroup]:
    guidance = float(results.dataset["guidance"].min()) if results.measures else 1.0
    place = f", guidance {guidance:g}" if results.guided else ""
    for key in (key for key in _MEASURES if key in results.measures):
        frontier = Frontier.of(results, key, guidance, rivals)
        measure = results.measures[key]
        fixed = {
            f"{LIKELIHOOD_SAMPLER}, {method}": Route(LIKELIHOOD_SAMPLER, method, False)
            for method in (results.heads(key).label("ocm"), FIXED)
        }
        title = f"{measure.name} {'↑' if measure.higher else '↓'}{place}"
        yield _group(title, frontier, fixed, budgets)


def _group(
    title: str, frontier: Frontier, fixed: Mapping[str, Route], budgets: Sequence[int]
) -> ResultGroup:
    columns: list[MethodComparison] = []
    notes: dict[tuple[str, int], str] = {}
    for i, k in enumerate(budgets):
        ours, solver = frontier.best(k, rival=False), frontier.best(k, rival=True)
        chosen = {OURS: ours, **fixed, SOLVER: solver}
        known = {
            label: values
            for label, route in chosen.items()
            if route is not None and (values := frontier.seeds(route, k)) is not None
        }
        notes |= {
            (label, i): route.label for label, route in ((OURS, ours), (SOLVER, solver)) if route
        }
        columns.append(_comparison(f"K = {k}", known))
    return ranked_group(title, columns, higher=frontier.higher, notes=notes)


def _comparison(where: str, values: Mapping[str, xr.DataArray]) -> MethodComparison:
    if not values:
        return MethodComparison.of_seeds(where, xr.DataArray([], dims="method"))
    stacked = xr.concat(values.values(), xr.Variable("method", [*values]), coords="minimal")
    return MethodComparison.of_seeds(where, stacked)


def bound_groups(
    bounds: xr.Dataset, chains: Mapping[str, str], budgets: Sequence[int], ocm: str
) -> Iterator[ResultGroup]:
    """Of each chain that the bound was computed on."""
    if "nll" not in bounds:
        return
    for name in bounds["chain"].values.tolist():
        means, errors = (bounds[v].sel(chain=name) for v in ("nll", "nll_se"))
        columns: list[MethodComparison] = []
        notes: dict[tuple[str, int], str] = {}
        for i, k in enumerate(budgets):
            here = means.sel(steps=k) if k in means["steps"] else means.isel(steps=0) * float("nan")
            noise = errors.sel(steps=k) if k in errors["steps"] else here
            best = MethodComparison.of_errors("", here, noise).best()
            rows = {OURS: best, **{m: m for m in (ocm, FIXED) if m in methods_with_values(here)}}
            known = {label: method for label, method in rows.items() if method is not None}
            notes |= {(OURS, i): best} if best else {}
            columns.append(_of_rows(f"K = {k}", known, here, noise))
        yield ranked_group(f"bits/dim ↓, {chains.get(name, name)} chain", columns, notes=notes)


def _of_rows(
    where: str, rows: Mapping[str, str], means: xr.DataArray, errors: xr.DataArray
) -> MethodComparison:
    """By the names of rows in the place of those of methods."""
    chosen = [
        values.sel({"method": [*rows.values()]}).assign_coords(method=[*rows])
        for values in (means, errors)
    ]
    return MethodComparison.of_errors(where, *chosen)
