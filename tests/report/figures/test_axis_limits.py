"""An axis shows the interesting range; what is beyond stands at its edge, and no bar leaves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.figures.axis_limits import interesting
from ocm_core.report.page.document import Figure, Plot
from ocm_core.report.page.style import LEARNED, LineStyle
from tests.report import committed

STYLE = LineStyle(LEARNED, "blue", "circle")
STEPS = [5, 10, 25]


def values(*lines: list[float]) -> xr.DataArray:
    return xr.DataArray(np.array(lines), {"steps": STEPS}, ("method", "steps"))


def drawn(lines: xr.DataArray, errors: float, **look: Any) -> dict[str, Any]:
    noise = xr.full_like(lines, errors)
    x = charts.listed_axis("K", STEPS, log=True)
    figure = charts.chart(x, charts.value_axis("y", lines, noise, **look))
    for i, line in enumerate(lines):
        charts.add_line(figure, f"m{i}", STYLE, line, noise[i])
    return charts.bounded(figure)


CLOSE = [[5.0, 4.0, 3.0], [5.5, 4.2, 3.1], [5.2, 4.4, 3.2], [5.1, 4.1, 3.0]]


def test_one_far_method_does_not_squeeze_the_others() -> None:
    given = values(*CLOSE, [726.0, 216.0, 59.0])
    shown = interesting(given, log=True)
    assert float(shown.max()) == 5.5 and int(shown.isnull().sum()) == 3
    assert interesting(values(*CLOSE), log=True).equals(values(*CLOSE))


def test_half_of_the_methods_are_drawn_at_every_k() -> None:
    given = values(*[[100.0 + i, 1.0 + i / 10, 0.5] for i in range(10)])
    assert bool(interesting(given, log=True).notnull().all("method").any())
    assert int(interesting(given, log=True).sel(steps=5).notnull().sum()) >= 5


def test_where_higher_is_better_the_low_ones_are_left_out() -> None:
    given = values([0.95, 0.96, 0.97], [0.94, 0.96, 0.97], [0.96, 0.97, 0.97], [0.1, 0.2, 0.96])
    shown = interesting(given, log=False, higher=True)
    assert float(shown.min()) == 0.94


def test_what_is_beyond_stands_at_the_edge_with_its_value() -> None:
    tree = drawn(values(*CLOSE, [726.0, 216.0, 3.3]), 0.01)
    high = tree["layout"]["yaxis"]["range"][1]
    far = tree["data"][-1]
    edge = 10**high if tree["layout"]["yaxis"].get("type") == "log" else high
    assert far["y"][:2] == pytest.approx([edge, edge]) and far["y"][2] == 3.3
    assert far["text"] == ["726", "216", "3.3"]  # told where one points
    notes = tree["layout"]["annotations"]
    assert [(note["text"], note["name"]) for note in notes] == [("726", "m4"), ("216", "m4")]


def test_values_at_one_edge_do_not_stand_on_one_another() -> None:
    far = [[700.0 + 10 * i, 4.0, 3.0] for i in range(3)]
    tree = drawn(values(*CLOSE, *CLOSE, *far), 0.01)
    shifts = [note["yshift"] for note in tree["layout"]["annotations"]]
    assert len(shifts) == 3 and np.abs(np.diff(sorted(shifts))).min() >= 12


def test_no_bar_leaves_its_axis() -> None:
    figures = [block for block in committed.digits_page().blocks if isinstance(block, Figure)]
    plots = [pane for figure in figures for pane in figure.panes if isinstance(pane, Plot)]
    assert len(plots) > 20
    for plot in plots:
        for name in "xy":
            _assert_inside(plot, name)


def _assert_inside(plot: Plot, name: str) -> None:
    axis = plot.spec["layout"][f"{name}axis"]
    if "range" not in axis:
        return
    low, high = (10**end for end in axis["range"]) if axis.get("type") == "log" else axis["range"]
    slack = 1e-6 * (high - low)
    for trace in plot.spec["data"]:
        bars = trace.get(f"error_{name}")
        if not bars:
            continue
        below = bars.get("arrayminus", bars["array"])
        for value, up, down in zip(trace[name], bars["array"], below, strict=True):
            if value is not None:
                assert low - slack <= value - (down or 0) and value + (up or 0) <= high + slack
