"""Training curves: the smoothed loss of every network that was trained, against iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy import ndarray

from ocm_core.report.figures.charts import axis, layout, plain
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import DataTable, Figure, Plot
from ocm_core.report.page.style import var
from ocm_core.text import listed

_START = 0.8  # of training: where its end begins
_LEVEL = 0.02  # of the loss

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
        "do not compare. What to look for is a curve that is level at its end: with noisy targets "
        "its height says nothing of its error. Where a curve begins above its chart, that is the "
        f"first steep fall. {levelled(curves)}",
        panes=tuple(panes),
        arrangement="strips",
        table=DataTable("training", ("training", "network", "iteration", "loss"), tuple(rows)),
    )


def levelled(curves: Mapping[str, LossCurve]) -> str:
    """Which networks have stopped learning, and which have not, in a sentence."""
    falling = [
        f"{name} ({change:+.0%})"
        for curve in curves.values()
        for name in _networks(curve)
        if (change := _last_change(curve, name)) < -_LEVEL
    ]
    share = f"the last {1 - _START:.0%} of its iterations"
    if not falling:
        return f"No loss fell by more than {_LEVEL:.0%} over {share}: all have levelled off."
    return f"Over {share} a loss still fell by more than {_LEVEL:.0%} of itself: {listed(falling)}."


def _last_change(curve: LossCurve, name: str) -> float:
    """Of the loss over the end of training, by a straight line, as a share of its mean there."""
    values = np.array([point[name] for point in curve])[int(_START * len(curve)) :]
    if len(values) < 2:
        return 0.0
    slope = np.polyfit(np.arange(len(values)), values, 1)[0]
    return float(slope * (len(values) - 1) / max(abs(values.mean()), 1e-12))


def _chart(curve: LossCurve, name: str, colour: str) -> Mapping[str, object]:
    quiet = {"nticks": 4, "tickfont": {"size": 10}}
    margin = {"l": 46, "r": 6, "t": 4, "b": 36}
    losses = np.array([point[name] for point in curve])
    y = axis("loss", **quiet, range=_shown(losses))
    look = layout(xaxis=axis("iteration", **quiet), yaxis=y, margin=margin)
    figure = go.Figure(layout=look)
    figure.add_scatter(
        x=[point["iteration"] for point in curve],
        y=[float(f"{point[name]:.5g}") for point in curve],
        mode="lines",
        line={"color": colour, "width": 1.5},
        hovertemplate="%{x}: %{y:.4g}<extra></extra>",
    )
    return plain(figure)


def _shown(losses: ndarray) -> list[float]:
    """Without the first steep fall, beside which the rest would be a flat line."""
    finite = losses[np.isfinite(losses)]
    settled = finite[len(finite) // 10 :] if len(finite) > 10 else finite
    low, high = float(settled.min()), float(settled.max())
    margin = 0.08 * (high - low or abs(high) or 1.0)
    return [low - margin, high + margin]


def _networks(curve: LossCurve) -> list[str]:
    return [name for name in curve[0] if name != "iteration"]


def _thinned(curve: LossCurve, name: str) -> Iterator[tuple[int, float]]:
    """Ten points: enough to see whether a curve has levelled off."""
    for i in np.unique(np.linspace(0, len(curve) - 1, 10).round().astype(int)):
        yield int(curve[i]["iteration"]), float(curve[i][name])
