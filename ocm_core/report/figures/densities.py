"""The density of noisy data q(x_t) of a toy at several t, in closed form, with test points."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Protocol

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ocm_core.diffusion.schedule import Schedule
from ocm_core.report.figures.charts import layout, plain
from ocm_core.report.page.document import ColourBar, DataTable, Figure, Plot
from ocm_core.report.page.style import var
from ocm_core.rng.streams import Purpose, stream

PlanePoints = Float[ndarray, "n 2"]

SHARES_OF_T = (0.0, 0.05, 0.15, 0.3, 0.5, 1.0)
_CELLS = 97
_SHOWN = 400
_SCALE = [[i / 3, var(f"density-{i}")] for i in range(4)]


class Density(Protocol):
    def log_density(self, x: Tensor, alpha_bar: Tensor, b: Tensor) -> Tensor: ...


def noisy_marginals(truth: Density, schedule: Schedule, test: PlanePoints, reach: float) -> Figure:
    times = list(dict.fromkeys(round(share * schedule.steps) for share in SHARES_OF_T))
    grid = np.linspace(-reach, reach, _CELLS)
    panes, rows = [], []
    for t in times:
        alpha_bar, b = float(schedule.alpha_bar[t]), float(schedule.b[t])
        log_q = _on_grid(truth, grid, alpha_bar, b)
        panes.append(_pane(t, grid, log_q, _noised(test[:_SHOWN], alpha_bar, b)))
        rows.append((t, alpha_bar, b, float(np.exp(log_q.max()))))
    return Figure(
        id="density",
        label=f"Contours of the density of the noisy data at t = {_listed(times)}, with points.",
        caption=f"The density of q(xₜ) in closed form, at t = {_listed(times)} of "
        f"{schedule.steps}, and {min(_SHOWN, len(test))} points of the test set, with noise added "
        "for t > 0. Each panel is shaded by the root of its density relative to its own peak.",
        panes=tuple(panes),
        arrangement="small",
        colour_bar=ColourBar(
            tuple(var(f"density-{i}") for i in range(4)), "no density", "each panel's peak"
        ),
        table=DataTable("density", ("t", "ᾱ", "1 - ᾱ", "peak density on the grid"), tuple(rows)),
    )


def _on_grid(
    truth: Density, grid: Float[ndarray, " n"], alpha_bar: float, b: float
) -> Float[ndarray, "n n"]:
    x, y = np.meshgrid(grid, grid)
    points = torch.from_numpy(np.stack([x.ravel(), y.ravel()], axis=1))
    level = torch.ones(len(points), 1, dtype=points.dtype)
    log_q = truth.log_density(points, alpha_bar * level, b * level)
    return np.asarray(log_q.reshape(x.shape))


def _noised(points: PlanePoints, alpha_bar: float, b: float) -> PlanePoints:
    noise = stream(Purpose.FIGURE, 0).standard_normal(points.shape)
    return sqrt(alpha_bar) * points + sqrt(b) * noise


def _pane(t: int, grid: ndarray, log_q: ndarray, points: PlanePoints) -> Plot:
    relative = np.exp(0.5 * (log_q - log_q.max()))
    frame = {"showline": True, "mirror": True, "linecolor": var("rule"), "layer": "above traces"}
    limits = {"range": [float(grid[0]), float(grid[-1])], "fixedrange": True}
    axis = frame | limits | {"showticklabels": False, "showgrid": False, "zeroline": False}
    margin = {"l": 22, "r": 1, "t": 1, "b": 22}
    equal = {"scaleanchor": "x", "constrain": "domain"}
    x, y = ({"title": {"text": name, "standoff": 3, "font": {"size": 11}}} for name in ("x₁", "x₂"))
    figure = go.Figure(layout=layout(xaxis=axis | x, yaxis=axis | y | equal, margin=margin))
    figure.add_contour(
        x=grid.astype(np.float32),
        y=grid.astype(np.float32),
        z=np.rint(255 * relative).astype(np.uint8),  # a quarter of the bytes, and no eye sees it
        colorscale=_SCALE,
        contours={"start": 20, "end": 250, "size": 23},
        line={"width": 0},
        showscale=False,
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=points[:, 0].astype(np.float32),
        y=points[:, 1].astype(np.float32),
        mode="markers",
        marker={"size": 2.5, "color": var("ink"), "opacity": 0.55},
        hoverinfo="skip",
    )
    return Plot(f"t = {t}", plain(figure))


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
