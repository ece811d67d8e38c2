"""Tables as papers print them: methods by numbers of steps, one for each measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import xarray as xr

from ocm_core.report.page.result_table import ResultGroup, ResultTable
from ocm_core.report.statistics.image_results import ImageResults, SampleMeasure
from ocm_core.report.statistics.method_comparison import MethodComparison
from ocm_core.report.statistics.selections import methods_with_values
from ocm_core.report.tables.published_comparison import Compared
from ocm_core.report.tables.ranked import RULE, PublishedMeans, ranked_group

ALONE = "samplers with one covariance"
_SCALES = {"fid": ("FID", 1.0), "recall": ("recall, %", 0.01)}  # the paper's names and units
NLL = "NLL, bits/dim"


def sample_table(
    results: ImageResults, key: str, compared: Sequence[Compared] = ()
) -> ResultTable | None:
    """Of one measure: a group for each sampler that has several methods, and one of the others."""
    measure, values = results.measures[key], results.dataset[key].dropna("steps", how="all")
    steps = [int(k) for k in values["steps"].values]
    groups = [*_groups(results, measure, values, steps, compared)]
    if not groups:
        return None
    better = "higher" if measure.higher else "lower"
    caption = f"{measure.name} ({better} is better). {results.small_print} {RULE}"
    name = f"{key}-by-steps{results.ending}"
    return ResultTable(name, caption, "method", _columns(steps), tuple(groups))


def _groups(
    results: ImageResults,
    measure: SampleMeasure,
    values: xr.DataArray,
    steps: Sequence[int],
    compared: Sequence[Compared],
) -> Iterator[ResultGroup]:
    for scale in values["guidance"].values.tolist():
        alone: dict[str, xr.DataArray] = {}
        for sampler in values["sampler"].values.tolist():
            here = values.sel(sampler=sampler, guidance=scale, drop=True)
            methods = methods_with_values(here)
            if len(methods) > 1:
                theirs = _published(measure.key, sampler, scale, steps, compared)
                title = results.place(sampler, scale)
                yield ranked_group(
                    title, _by_seeds(here, steps), higher=measure.higher, published=theirs
                )
            else:
                alone |= {f"{sampler}, {m}": here.sel({"method": m}, drop=True) for m in methods}
        if alone:
            stacked = xr.concat(alone.values(), xr.Variable("method", [*alone]), coords="minimal")
            title = f"{ALONE}, guidance {scale:g}" if results.guided else ALONE
            yield ranked_group(title, _by_seeds(stacked, steps), higher=measure.higher)


def _by_seeds(values: xr.DataArray, steps: Sequence[int]) -> list[MethodComparison]:
    return [MethodComparison.of_seeds(f"K = {k}", values.sel(steps=k)) for k in steps]


def bound_table(
    bounds: xr.Dataset, chains: Mapping[str, str], compared: Sequence[Compared] = ()
) -> ResultTable:
    """The bound on the likelihood, a group for each chain; the paper's stands with the first."""
    known = bounds["nll"].dropna("steps", how="all")
    steps = [int(k) for k in known["steps"].values]
    groups = []
    for i, name in enumerate(bounds["chain"].values.tolist()):
        means, errors = (bounds[v].sel(chain=name, drop=True) for v in ("nll", "nll_se"))
        columns = [
            MethodComparison.of_errors(f"K = {k}", means.sel(steps=k), errors.sel(steps=k))
            for k in steps
        ]
        theirs = {} if i else _published_bounds(steps, compared)
        groups.append(ranked_group(f"{chains.get(name, name)} chain", columns, published=theirs))
    caption = f"Bits per dimension (lower is better), ± over test data. {RULE}"
    return ResultTable("nll-by-steps", caption, "method", _columns(steps), tuple(groups))


def _columns(steps: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"K = {k}" for k in steps)


def _published(
    key: str, sampler: str, scale: float, steps: Sequence[int], compared: Sequence[Compared]
) -> PublishedMeans:
    if key not in _SCALES:
        return {}
    name, unit = _SCALES[key]
    here = [c for c in compared if (c.cell.sampler, c.cell.guidance) == (sampler, scale)]
    return _printed(name, unit, steps, here)


def _published_bounds(steps: Sequence[int], compared: Sequence[Compared]) -> PublishedMeans:
    return _printed(NLL, 1.0, steps, compared)


def _printed(
    name: str, unit: float, steps: Sequence[int], compared: Sequence[Compared]
) -> PublishedMeans:
    """By method and column, as printed."""
    found: dict[str, dict[int, float]] = {}
    for one in compared:
        row = one.paper or one.seeds
        if one.measure == name and row is not None and row.value is not None:
            at = found.setdefault(one.cell.method, {})
            at[steps.index(one.cell.steps)] = unit * row.value
    return found
