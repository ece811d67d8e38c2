"""One measure against another along the number of steps: a path per method, with K beside it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.likelihood import UNIT
from ocm_core.report.page.document import Control, Figure, Plot, Table, Value
from ocm_core.report.statistics.image_results import Evidence
from ocm_core.report.statistics.selections import LIKELIHOOD_SAMPLER, UNGUIDED

_LABELLED = "ocm"  # at every K; the others at the ends of their paths


@dataclass(frozen=True)
class _Quantity:
    """Over (sampler, method, steps, guidance)."""

    name: str
    log: bool
    means: xr.DataArray
    errors: xr.DataArray


def distance_against_likelihood(evidence: Evidence) -> Figure | None:
    """The paper's trade-off. The bound is that of DDPM chains without guidance."""
    chains = {"sampler": [LIKELIHOOD_SAMPLER], "guidance": [UNGUIDED]}
    bound = _Quantity(
        f"NLL, {UNIT}",
        True,
        evidence.mean("nll").expand_dims(chains),
        evidence.error("nll").expand_dims(chains),
    )
    said = (
        f"{evidence.distance} against NLL, for K along each path. Lower is better for both: the "
        "good corner is the lower left. The bars of NLL are standard errors over test images."
    )
    return _paths(evidence, "fid-nll", bound, _quantity(evidence, "fid"), said)


def recall_against_distance(evidence: Evidence) -> Figure | None:
    distance, recall = _quantity(evidence, "fid"), _quantity(evidence, "recall")
    said = (
        f"Recall (how much of the data the samples cover) against {evidence.distance}, for K along "
        "each path: the good corner is the upper left."
    )
    return _paths(evidence, "recall-fid", distance, recall, said)


def _quantity(evidence: Evidence, key: str) -> _Quantity:
    measure = evidence.measures[key]
    return _Quantity(measure.name, measure.log, evidence.mean(key), evidence.error(key))


def _paths(evidence: Evidence, id: str, x: _Quantity, y: _Quantity, said: str) -> Figure | None:
    """None where no method has both at any K."""
    parts = xr.align(x.means, y.means, x.errors, y.errors, join="inner")
    known = xr.Dataset(dict(zip(("x", "y", "x_error", "y_error"), parts, strict=True)))
    known = known.where((known["x"] + known["y"]).notnull())
    shown = charts.drawn(known["x"], evidence.styles)
    if not shown:
        return None
    axes = [
        charts.value_axis(of.name, known[v], known[f"{v}_error"], log=of.log)
        for of, v in ((x, "x"), (y, "y"))
    ]
    panes = []
    rows: list[tuple[Value, ...]] = []
    for guidance, sampler in product(known["guidance"].values, known["sampler"].values):
        here = known.sel(sampler=sampler, guidance=guidance)
        figure = charts.chart(*axes)
        for label in charts.drawn(here["x"], evidence.styles):
            path = here.sel({"method": label}).dropna("steps", subset=["x", "y"])
            texts = _texts(path["steps"].values.tolist(), every=label == _LABELLED)
            charts.add_path(figure, label, evidence.styles[label], path, texts)
            scale = [float(guidance)] * evidence.guided
            rows += [
                (str(sampler), label, int(k), *scale, *_numbers(path.sel(steps=k)))
                for k in path["steps"].values
            ]
        if figure.data:
            title = evidence.place(str(sampler), float(guidance))
            panes.append(Plot(title, charts.plain(figure), {"guidance": f"{guidance:g}"}))
    scales = tuple(dict.fromkeys(pane.at["guidance"] for pane in panes))
    measured = (x.name, f"{x.name}: standard error", y.name, f"{y.name}: standard error")
    return Figure(
        id=id,
        label=f"Paths of {y.name} against {x.name} along the number of steps, one per method: "
        f"{', '.join(shown)}.",
        caption=f"{said} {evidence.small_print}",
        panes=tuple(panes),
        legend={label: evidence.styles[label] for label in shown},
        controls=(Control("guidance", "Guidance", scales, "one"),),
        table=Table(
            id.replace("-", "_"),
            ("sampler", "method", "steps", *["guidance"] * evidence.guided, *measured),
            tuple(rows),
        ),
    )


def _texts(steps: list[int], *, every: bool) -> list[str]:
    return [f"{k}" if every or k in (steps[0], steps[-1]) else "" for k in steps]


def _numbers(point: xr.Dataset) -> tuple[Value, ...]:
    return tuple(float(point[name]) for name in ("x", "x_error", "y", "y_error"))
