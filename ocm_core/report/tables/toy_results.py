"""Tables of a toy as papers print them, and the small one that a visitor sees first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import xarray as xr

from ocm_core.report.page.result_table import ResultGroup, ResultTable
from ocm_core.report.statistics.method_comparison import FIXED_VARIANCES, MethodComparison
from ocm_core.report.statistics.selections import (
    TABLE_STEPS,
    methods_with_values,
    nearest_steps,
    ordered,
)
from ocm_core.report.tables.headline import OURS, bound_groups
from ocm_core.report.tables.ranked import MARKS, RULE, ranked_group


def mmd_table(results: xr.Dataset) -> ResultTable:
    """A group for each score and sampler."""
    steps = [int(k) for k in results["mmd"]["steps"].values]
    groups = [
        ranked_group(title, [MethodComparison.of_seeds("", chain.sel(steps=k)) for k in steps])
        for title, chain in _chains(results)
    ]
    caption = f"MMD (lower is better), the mean over seeds. {RULE}"
    columns = tuple(f"K = {k}" for k in steps)
    return ResultTable("mmd-by-steps", caption, "method", columns, tuple(groups))


def _chains(results: xr.Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    for score in results["score"].values.tolist():
        for sampler in results["sampler"].values.tolist():
            yield (
                f"{sampler.upper()}, {score} score",
                results["mmd"].sel(sampler=sampler, score=score),
            )


def headline(
    results: xr.Dataset, score: str, ocm: str, chains: Mapping[str, str]
) -> ResultTable | None:
    """With one score: the best, OCM, the exact diagonal and a fixed variance, at a few budgets."""
    here = ordered(results).sel(score=score)
    key = next((key for key in ("mmd", "nll") if key in here), None)
    if key is None:
        return None
    steps = here[key].dropna("steps", how="all")["steps"].values.tolist()
    budgets = nearest_steps(TABLE_STEPS, steps)
    groups = [*_of_samples(here, ocm, budgets), *bound_groups(here, chains, budgets, ocm)]
    columns = tuple(f"K = {k}" for k in budgets)
    return ResultTable("headline", MARKS, "network evaluations", columns, tuple(groups))


def _of_samples(results: xr.Dataset, ocm: str, budgets: Sequence[int]) -> Iterator[ResultGroup]:
    for sampler in results["sampler"].values.tolist() if "mmd" in results else ():
        values = results["mmd"].sel(sampler=sampler, drop=True)
        known = methods_with_values(values)
        fixed = [m for m in (ocm, "exact_diag", *FIXED_VARIANCES) if m in known]
        columns: list[MethodComparison] = []
        notes: dict[tuple[str, int], str] = {}
        for i, k in enumerate(budgets):
            at = values.sel(steps=k, drop=True)
            best = MethodComparison.of_seeds("", at).best()
            rows = {**({OURS: best} if best else {}), **{m: m for m in fixed}}
            notes |= {(OURS, i): best} if best else {}
            chosen = at.sel({"method": [*rows.values()]}).assign_coords(method=[*rows])
            columns.append(MethodComparison.of_seeds("", chosen))
        yield ranked_group(f"MMD ↓, {sampler.upper()}", columns, notes=notes)
