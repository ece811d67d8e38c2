"""Trade-offs: one measure against another, a path per method along the number of steps K."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.likelihood import UNIT
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import Control, DataTable, Figure, Plot, Value
from ocm_core.report.statistics.image_results import ImageResults
from ocm_core.report.statistics.selections import LIKELIHOOD_SAMPLER, UNGUIDED


@dataclass(frozen=True)
class _Quantity:
    """One axis of the plane: means and errors over (sampler, method, steps, guidance)."""

    name: str
    log: bool
    means: xr.DataArray
    errors: xr.DataArray


def distance_against_likelihood(results: ImageResults, styles: MethodStyles) -> Figure | None:
    """The paper's trade-off. The bound is that of DDPM chains without guidance."""
    chains = {"sampler": [LIKELIHOOD_SAMPLER], "guidance": [UNGUIDED]}
    bound = _Quantity(
        f"NLL, {UNIT}",
        True,
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
    return _Quantity(measure.name, measure.log, results.mean(key), results.error(key))


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
    ocm = results.heads("fid").label("ocm")  # has every K beside it, other paths only the ends
    axes = [
        charts.value_axis(of.name, known[v], known[f"{v}_error"], log=of.log)
        for of, v in ((x, "x"), (y, "y"))
    ]
    panes = []
    rows: list[tuple[Value, ...]] = []
    for guidance, sampler in product(known["guidance"].values, known["sampler"].values):
        here = known.sel(sampler=sampler, guidance=guidance)
        figure = charts.chart(*axes)
        for label in charts.drawn(here["x"], styles):
            path = here.sel({"method": label}).dropna("steps", subset=["x", "y"])
            texts = _texts(path["steps"].values.tolist(), every=label == ocm)
            charts.add_path(figure, label, styles[label], path, texts)
            scale = [float(guidance)] * results.guided
            rows += [
                (str(sampler), label, int(k), *scale, *_numbers(path.sel(steps=k)))
                for k in path["steps"].values
            ]
        if figure.data:
            title = results.place(str(sampler), float(guidance))
            panes.append(Plot(title, charts.plain(figure), {"guidance": f"{guidance:g}"}))
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


def _texts(steps: list[int], *, every: bool) -> list[str]:
    return [f"{k}" if every or k in (steps[0], steps[-1]) else "" for k in steps]


def _numbers(point: xr.Dataset) -> tuple[Value, ...]:
    return tuple(float(point[name]) for name in ("x", "x_error", "y", "y_error"))
