"""Curves of FID, recall and so on along the number of steps, or along the guidance scale.

Standard errors are told where one points; ten bars on top of each other say nothing, and
`differences` has those that do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import Control, DataTable, Figure, Plot, Value
from ocm_core.report.statistics.image_results import ImageResults, SampleMeasure
from ocm_core.report.statistics.selections import methods_with_values

Axis = Literal["steps", "guidance"]
_TITLES = {"steps": "network evaluations K", "guidance": "guidance scale"}
_OTHER: dict[Axis, Axis] = {"steps": "guidance", "guidance": "steps"}


@dataclass(frozen=True)
class _Cut:
    """What one chart shows: a measure of one sampler, at one value of the axis not drawn."""

    measure: SampleMeasure
    sampler: str
    fixed: float
    means: xr.DataArray  # over (method, axis)


def metric_curves(
    results: ImageResults, styles: MethodStyles, keys: Sequence[str], axis: Axis, id: str
) -> Figure:
    """One figure for several measures, of which the reader chooses one."""
    measures = [results.measures[key] for key in keys]
    cuts = [cut for measure in measures for cut in _cuts(results, measure, axis)]
    names = tuple(measure.name for measure in measures)
    said = ", ".join(f"{m.name} ({'higher' if m.higher else 'lower'} is better)" for m in measures)
    shown = charts.drawn(results.mean(keys[0]), styles)
    scale = Control(
        name=_OTHER[axis],
        label="K" if axis == "guidance" else "Guidance",
        values=tuple(f"{value:g}" for value in sorted({cut.fixed for cut in cuts})),
        kind="scale" if axis == "guidance" else "one",
    )
    return Figure(
        id=id,
        label=f"Line charts of {', '.join(names)} against the {_TITLES[axis]}, one line per "
        f"method: {', '.join(shown)}.",
        caption=f"{said[0].upper()}{said[1:]} against the {_TITLES[axis]}. {results.small_print}",
        panes=tuple(_pane(results, styles, cut, axis) for cut in cuts),
        legend={method: styles[method] for method in shown},
        controls=(Control("measure", "Measure", names, "one"), scale),
        table=_table(results, measures, id.replace("-", "_")),
    )


def _cuts(results: ImageResults, measure: SampleMeasure, axis: Axis) -> list[_Cut]:
    """Every chart with several methods and several points along the axis, if any has several."""
    means = results.mean(measure.key)
    other = _OTHER[axis]
    found = []
    for fixed in means[other].values:
        for sampler in means["sampler"].values:
            one = means.sel({"sampler": sampler, other: fixed}).dropna(axis, how="all")
            if one.sizes[axis]:
                found.append(_Cut(measure, str(sampler), float(fixed), one))
    compared = [cut for cut in found if len(methods_with_values(cut.means)) > 1] or found
    return [cut for cut in compared if cut.means.sizes[axis] > 1] or compared


def _pane(results: ImageResults, styles: MethodStyles, cut: _Cut, axis: Axis) -> Plot:
    measure, errors = cut.measure, results.error(cut.measure.key)
    places = cut.means[axis]
    x = charts.listed_axis(_TITLES[axis], places.values.tolist(), log=axis == "steps")
    y = charts.value_axis(
        measure.name, results.mean(measure.key), errors, log=measure.log, higher=measure.higher
    )
    figure = charts.chart(x, y)
    for label in charts.drawn(cut.means, styles):
        line = {"sampler": cut.sampler, _OTHER[axis]: cut.fixed, "method": label}
        drawn = places[results.sampled.sel({**line, axis: places})]
        values = cut.means.sel({"method": label, axis: drawn})
        error = errors.sel({**line, axis: drawn})
        charts.add_line(figure, label, styles[label], values, error, with_bars=False)
    place = (
        results.place(cut.sampler, cut.fixed)
        if axis == "steps"
        else f"{cut.sampler.upper()}, K = {cut.fixed:g}"
    )
    at = {"measure": measure.name, _OTHER[axis]: f"{cut.fixed:g}"}
    return Plot(f"{place}: {measure.name}", charts.bounded(figure), at)


def _table(results: ImageResults, measures: Sequence[SampleMeasure], name: str) -> DataTable:
    """Every cell that has a value; no column for a single measure or a single guidance scale."""
    several, guided = len(measures) > 1, results.guided
    rows: list[tuple[Value, ...]] = [
        (
            *[measure.name] * several,
            *(cell.sampler, cell.method, cell.steps),
            *[cell.guidance] * guided,
            *(cell.mean, cell.deviation, cell.error),
        )
        for measure in measures
        for cell in results.cells(measure.key)
    ]
    columns = (
        *["measure"] * several,
        *("sampler", "method", "steps"),
        *["guidance"] * guided,
        *("mean", "standard deviation over seeds", "standard error"),
    )
    return DataTable(name, columns, tuple(rows))
