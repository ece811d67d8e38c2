"""Trade-offs: one measure against another, a path per method along the number of steps K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import dist, log10
from typing import Any

import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.likelihood import UNIT
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import Control, DataTable, Figure, Plot, Value
from ocm_core.report.statistics.image_results import ImageResults
from ocm_core.report.statistics.selections import LIKELIHOOD_SAMPLER, UNGUIDED

_APART = 0.09  # of an axis, between two points with their K beside them


@dataclass(frozen=True)
class _Quantity:
    """One axis of the plane: means and errors over (sampler, method, steps, guidance)."""

    name: str
    log: bool
    higher: bool  # is better
    means: xr.DataArray
    errors: xr.DataArray


def distance_against_likelihood(results: ImageResults, styles: MethodStyles) -> Figure | None:
    """The paper's trade-off. The bound is that of DDPM chains without guidance."""
    chains = {"sampler": [LIKELIHOOD_SAMPLER], "guidance": [UNGUIDED]}
    bound = _Quantity(
        f"NLL, {UNIT}",
        True,
        False,
        results.mean("nll").expand_dims(chains),
        results.error("nll").expand_dims(chains),
    )
    said = (
        f"{results.distance} against NLL, for K along each path. Lower is better for both: the "
        "good corner is the lower left. The bars of NLL are standard errors over test images."
    )
    return _paths(results, styles, "fid-nll", bound, _quantity(results, "fid"), said)


def recall_against_distance(results: ImageResults, styles: MethodStyles) -> Figure | None:
    distance, recall = _quantity(results, "fid"), _quantity(results, "recall")
    said = (
        f"Recall (how much of the data the samples cover) against {results.distance}, for K along "
        "each path: the good corner is the upper left."
    )
    return _paths(results, styles, "recall-fid", distance, recall, said)


def _quantity(results: ImageResults, key: str) -> _Quantity:
    measure = results.measures[key]
    return _Quantity(
        measure.name, measure.log, measure.higher, results.mean(key), results.error(key)
    )


def _paths(
    results: ImageResults, styles: MethodStyles, id: str, x: _Quantity, y: _Quantity, said: str
) -> Figure | None:
    """None where no method has both quantities at any K."""
    parts = xr.align(x.means, y.means, x.errors, y.errors, join="inner")
    known = xr.Dataset(dict(zip(("x", "y", "x_error", "y_error"), parts, strict=True)))
    known = known.where((known["x"] + known["y"]).notnull())
    shown = charts.drawn(known["x"], styles)
    if not shown:
        return None
    ocm = results.heads("fid").label("ocm")  # has K beside it; all paths go the same way
    axes = [
        charts.value_axis(of.name, known[v], known[f"{v}_error"], log=of.log, higher=of.higher)
        for of, v in ((x, "x"), (y, "y"))
    ]
    panes = []
    rows: list[tuple[Value, ...]] = []
    for guidance, sampler in product(known["guidance"].values, known["sampler"].values):
        here = known.sel(sampler=sampler, guidance=guidance)
        figure = charts.chart(*axes)
        for label in charts.drawn(here["x"], styles):
            path = here.sel({"method": label}).dropna("steps", subset=["x", "y"])
            texts = _texts(path, axes) if label == ocm else [""] * path.sizes["steps"]
            charts.add_path(figure, label, styles[label], path, texts)
            scale = [float(guidance)] * results.guided
            rows += [
                (str(sampler), label, int(k), *scale, *_numbers(path.sel(steps=k)))
                for k in path["steps"].values
            ]
        if figure.data:
            title = results.place(str(sampler), float(guidance))
            panes.append(Plot(title, charts.bounded(figure), {"guidance": f"{guidance:g}"}))
    scales = tuple(dict.fromkeys(pane.at["guidance"] for pane in panes))
    measured = (x.name, f"{x.name}: standard error", y.name, f"{y.name}: standard error")
    return Figure(
        id=id,
        label=f"Paths of {y.name} against {x.name} along the number of steps, one per method: "
        f"{', '.join(shown)}.",
        caption=f"{said} {results.small_print}",
        panes=tuple(panes),
        legend={label: styles[label] for label in shown},
        controls=(Control("guidance", "Guidance", scales, "one"),),
        table=DataTable(
            id.replace("-", "_"),
            ("sampler", "method", "steps", *["guidance"] * results.guided, *measured),
            tuple(rows),
        ),
    )


def _texts(path: xr.Dataset, axes: Sequence[Mapping[str, Any]]) -> list[str]:
    """K beside each point that is far enough from the last that has it."""
    texts, last = [], None
    for k in path["steps"].values.tolist():
        at = path.sel(steps=k)
        place = [_share(axis, float(at[v])) for axis, v in zip(axes, "xy", strict=True)]
        roomy = last is None or dist(place, last) > _APART
        texts.append((f"K = {k}" if last is None else f"{k}") if roomy else "")
        last = place if roomy else last
    return texts


def _share(axis: Mapping[str, Any], value: float) -> float:
    """Of the way along the axis."""
    low, high = axis["range"]
    place = log10(value) if axis.get("type") == "log" else value
    return float((place - low) / (high - low))


def _numbers(point: xr.Dataset) -> tuple[Value, ...]:
    return tuple(float(point[name]) for name in ("x", "x_error", "y", "y_error"))
