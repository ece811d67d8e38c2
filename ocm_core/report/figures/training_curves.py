"""Training curves: the smoothed loss of every network that was trained, against iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from ocm_core.report.figures.charts import axis, layout, plain
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import DataTable, Figure, Plot
from ocm_core.report.page.style import var

LossCurve = Sequence[Mapping[str, float]]  # points of {"iteration": n, <network>: loss}


def training_curves(curves: Mapping[str, LossCurve], styles: MethodStyles) -> Figure:
    """One small chart per network, each with its own scale: their losses do not compare."""
    panes, rows = [], []
    for title, curve in curves.items():
        for name in _networks(curve):
            colour = styles[name].colour if name in styles else var("ink")
            panes.append(Plot(f"{name}, {title}", _chart(curve, name, colour)))
            rows += [(title, name, *point) for point in _thinned(curve, name)]
    return Figure(
        id="training-curves",
        label="Line charts of smoothed training losses against iterations, one per network.",
        caption="Smoothed training losses, each with its own scale: the targets differ, so heights "
        "do not compare. What to see is whether a curve has levelled off.",
        panes=tuple(panes),
        arrangement="strips",
        table=DataTable("training", ("training", "network", "iteration", "loss"), tuple(rows)),
    )


def _chart(curve: LossCurve, name: str, colour: str) -> Mapping[str, object]:
    quiet = {"nticks": 4, "tickfont": {"size": 10}}
    margin = {"l": 36, "r": 6, "t": 4, "b": 24}
    look = layout(xaxis=axis("", **quiet), yaxis=axis("", **quiet), margin=margin)
    figure = go.Figure(layout=look)
    figure.add_scatter(
        x=[point["iteration"] for point in curve],
        y=[float(f"{point[name]:.5g}") for point in curve],
        mode="lines",
        line={"color": colour, "width": 1.5},
        hovertemplate="%{x}: %{y:.4g}<extra></extra>",
    )
    return plain(figure)


def _networks(curve: LossCurve) -> list[str]:
    return [name for name in curve[0] if name != "iteration"]


def _thinned(curve: LossCurve, name: str) -> Iterator[tuple[int, float]]:
    """Ten points: enough to see whether a curve has levelled off."""
    for i in np.unique(np.linspace(0, len(curve) - 1, 10).round().astype(int)):
        yield int(curve[i]["iteration"]), float(curve[i][name])
