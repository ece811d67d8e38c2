"""Axes show the interesting range, and what is beyond stands at the edge with its value."""

from __future__ import annotations

from math import log10, nan

import pytest

from ocm_core.report import charts
from ocm_core.report.charts import Line
from ocm_core.report.document import Result, ResultGroup, ResultRow, ResultTable
from ocm_core.report.style import LineStyle
from ocm_core.results.replicates import Estimate

STYLE = LineStyle("Learned", "blue", "circle")


def line(*means: float, error: float = nan) -> Line:
    return [(5 * (i + 1), Estimate(mean, error)) for i, mean in enumerate(means)]


def drawn(lines: dict[str, Line], *, log: bool = True, higher: bool = False) -> charts.Spec:
    y = charts.value_axis("value", lines, log=log, higher=higher)
    styles = dict.fromkeys(lines, STYLE)
    return charts.chart(charts.listed_axis("nfe", [5, 10, 15]), y, lines, styles)


def test_one_far_line_does_not_squeeze_the_others() -> None:
    near = {f"m{i}": line(3.0 + i / 10, 2.5, 2.0 + i / 10) for i in range(6)}
    spec = drawn(near | {"far": line(700, 200, 60)})
    low, high = spec["layout"]["yaxis"]["range"]  # linear: the rest is near together
    assert low < 2 and 3.5 < high < 60
    notes = {note["text"] for note in spec["layout"]["annotations"]}
    assert {"700", "200", "60"} == notes
    far = spec["data"][-1]
    assert max(far["y"]) <= high and far["text"] == ["700", "200", "60"]


def test_where_higher_is_better_low_values_are_cut() -> None:
    near = {f"m{i}": line(0.9, 0.91, 0.92 + i / 100) for i in range(6)}
    spec = drawn(near | {"far": line(0.1, 0.1, 0.1)}, log=False, higher=True)
    low, high = spec["layout"]["yaxis"]["range"]
    assert 0.1 < low < 0.9 and high > 0.97
    assert len({note["yshift"] for note in spec["layout"]["annotations"]}) == 1


def test_values_of_one_place_are_stacked() -> None:
    near = {f"m{i}": line(1.0, 1.1, 1.2) for i in range(8)}
    spec = drawn(near | {"a": line(50, 1, 1), "b": line(90, 1, 1)}, log=False)
    shifts = [note["yshift"] for note in spec["layout"]["annotations"]]
    assert len({*shifts}) == len(shifts) == 2


def test_bars_end_where_the_axis_does() -> None:
    near = {f"m{i}": line(1.0, 1.0 + i / 50, 1.1) for i in range(8)}
    lines = near | {"a": line(1.0, 1.0, 1.0, error=0.1), "b": line(70, 60, 50, error=100)}
    spec = drawn(lines, log=False)
    _, high = spec["layout"]["yaxis"]["range"]
    b = spec["data"][-1]
    assert b["error_y"]["array"] == [0, 0, 0]
    assert all(y <= high for y in b["y"])


def test_gaps_stay_gaps() -> None:
    spec = drawn({"a": line(1.0, nan, 3.0)})
    assert spec["data"][0]["y"] == [1.0, None, 3.0]


@pytest.mark.parametrize(
    "lines", [{"a": line(2.0, 2.0, 2.0)}, {"a": line(0.0)}, {"a": line(-1.0, 2.0)}]
)
def test_flat_zero_and_negative_values_have_an_axis(lines: dict[str, Line]) -> None:
    low, high = drawn(lines)["layout"]["yaxis"]["range"]
    assert low < high


def test_ticks_have_numbers_where_there_is_room() -> None:
    axis = charts.listed_axis("nfe", [5, 20, 21, 100])
    assert axis["ticktext"] == ["5", "20", "", "100"]
    assert charts.decades("t", 1, 1000)["range"] == [log10(1) - 0.15, log10(1000) + 0.15]


TABLE = ResultTable(
    "table",
    "caption",
    "method",
    ("nfe 5", "nfe_10"),
    (
        ResultGroup(
            "FID ↓",
            (
                ResultRow("beta_tilde", (Result(12.345, 0.1, "best"), Result(1234.5))),
                ResultRow("ocm", (Result(13.0, None, "second", True), Result(float("nan")))),
            ),
        ),
    ),
)


def test_tables_are_copied_as_latex_and_csv() -> None:
    latex = TABLE.copies["LaTeX"]
    assert r"beta\_tilde & \textbf{12.3}$_{\pm 0.1}$ & 1234 \\" in latex
    assert r"ocm & \underline{13.0}$^\approx$ & -- \\" in latex
    assert TABLE.copies["CSV"].splitlines()[1] == "FID ↓,beta_tilde,12.345,0.1,1234.5,"
