"""Axes show the interesting range, and lines are told apart by everybody."""

from itertools import combinations
from math import log10, nan

import numpy as np
import pytest
from numpy import ndarray

from ocm_core.report import charts
from ocm_core.report.charts import DARK, LIGHT, RELATIVE, Line, LineStyle, method_styles
from ocm_core.report.document import Result, ResultGroup, ResultRow, ResultTable
from ocm_core.report.figures import levelled
from ocm_core.results.replicates import Estimate
from tests.results.synthetic import METHODS, PARAMS, study

STYLE = LineStyle("Learned", "blue", "circle")


def line(*means: float, error: float = nan) -> Line:
    return [(5 * (i + 1), Estimate(mean, error)) for i, mean in enumerate(means)]


def drawn(lines: dict[str, Line], *, log: bool = True, higher: bool = False) -> charts.Spec:
    y = charts.value_axis("value", lines, log=log, higher=higher)
    styles = dict.fromkeys(lines, STYLE)
    return charts.chart(charts.listed_axis("nfe", [5, 10, 15]), y, lines, styles)


def test_far_lines_on_the_bad_side_do_not_squeeze_the_others() -> None:
    near = {f"m{i}": line(3.0 + i / 10, 2.5, 2.0 + i / 10) for i in range(6)}
    spec = drawn(near | {"far": line(700, 200, 60)})
    low, high = spec["layout"]["yaxis"]["range"]  # linear: the rest is near together
    assert low < 2 and 3.5 < high < 60
    notes = {note["text"] for note in spec["layout"]["annotations"]}
    assert {"700", "200", "60"} == notes
    far = spec["data"][-1]
    assert max(far["y"]) <= high and far["text"] == ["700", "200", "60"]
    near = {f"m{i}": line(0.9, 0.91, 0.92 + i / 100) for i in range(6)}
    spec = drawn(near | {"far": line(0.1, 0.1, 0.1)}, log=False, higher=True)
    low, high = spec["layout"]["yaxis"]["range"]
    assert 0.1 < low < 0.9 and high > 0.97
    assert len({note["yshift"] for note in spec["layout"]["annotations"]}) == 1


def test_values_of_one_place_are_stacked_and_bars_end_where_the_axis_does() -> None:
    near = {f"m{i}": line(1.0, 1.1, 1.2) for i in range(8)}
    spec = drawn(near | {"a": line(50, 1, 1), "b": line(90, 1, 1)}, log=False)
    shifts = [note["yshift"] for note in spec["layout"]["annotations"]]
    assert len({*shifts}) == len(shifts) == 2
    near = {f"m{i}": line(1.0, 1.0 + i / 50, 1.1) for i in range(8)}
    lines = near | {"a": line(1.0, 1.0, 1.0, error=0.1), "b": line(70, 60, 50, error=100)}
    spec = drawn(lines, log=False)
    b = spec["data"][-1]
    assert b["error_y"]["array"] == [0, 0, 0]
    assert all(y <= spec["layout"]["yaxis"]["range"][1] for y in b["y"])


@pytest.mark.parametrize(
    "lines", [{"a": line(2.0, 2.0, 2.0)}, {"a": line(0.0)}, {"a": line(-1.0, 2.0)}]
)
def test_flat_zero_and_negative_values_have_an_axis(lines: dict[str, Line]) -> None:
    low, high = drawn(lines)["layout"]["yaxis"]["range"]
    assert low < high
    gap = drawn({"a": line(1.0, nan, 3.0)})
    assert gap["data"][0]["y"] == [1.0, None, 3.0]


def test_ticks_have_numbers_where_there_is_room() -> None:
    axis = charts.listed_axis("nfe", [5, 20, 21, 100])
    assert axis["ticktext"] == ["5", "20", "", "100"]
    assert charts.decades("t", 1, 1000)["range"] == [log10(1) - 0.15, log10(1000) + 0.15]


ROWS = (
    ResultRow("beta_tilde", (Result(12.345, 0.1, "best"), Result(1234.5))),
    ResultRow("ocm", (Result(13.0, None, "second", True), Result(float("nan")))),
)
GROUPS = (ResultGroup("FID ↓", ROWS),)
TABLE = ResultTable("table", "caption", "method", ("nfe 5", "nfe_10"), GROUPS)


def test_tables_are_copied_as_latex_and_csv() -> None:
    latex = TABLE.copies["LaTeX"]
    assert r"beta\_tilde & \textbf{12.3}$_{\pm 0.1}$ & 1234 \\" in latex
    assert r"ocm & \underline{13.0}$^\approx$ & -- \\" in latex
    assert TABLE.copies["CSV"].splitlines()[1] == "FID ↓,beta_tilde,12.345,0.1,1234.5,"


DASHES = ("solid", "dot", "dash", "longdash", "dashdot", "none")
HUES = ("vermillion", "blue", "green", "purple", "orange", "sky", "grey", "ink")
APART = 15.0  # CIELAB units; two that differ by less than about 5 look alike side by side
CONTRAST = 3.0  # of graphics, as WCAG 2.1 asks

# From linear RGB to what is left of it without one kind of cone (Machado et al. 2009, severity 1)
VISIONS = {
    "all cones": [*np.eye(3).flat],
    "deuteranopia": [
        *(0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413),
        *(-0.011820, 0.042940, 0.968881),
    ],
    "protanopia": [
        *(0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216),
        *(-0.003882, -0.048116, 1.051998),
    ],
}
XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
WHITE = [0.9505, 1.0, 1.0890]


def linear(colour: str) -> ndarray:
    levels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(rgb: ndarray) -> ndarray:
    x, y, z = np.array(XYZ) @ np.clip(rgb, 0, 1) / WHITE
    x, y, z = (np.cbrt(v) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, vision: str) -> float:
    cones = np.reshape(VISIONS[vision], (3, 3))
    seen = [lab(cones @ linear(colour)) for colour in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_no_two_hues_look_alike_and_all_stand_out(palette: dict[str, str]) -> None:
    for vision in VISIONS:
        for one, other in combinations(HUES, 2):
            assert distance(palette[one], palette[other], vision) > APART, (vision, one, other)
    light = {name: float(linear(palette[name]) @ XYZ[1]) + 0.05 for name in (*HUES, "page")}
    for hue in HUES:
        low, high = sorted((light[hue], light["page"]))
        assert high / low >= CONTRAST, hue


def test_no_two_methods_look_the_same() -> None:
    variants = {f"rademacher_{m}": {"kind": "rademacher", "probes": m} for m in (1, 10, 100)}
    own = {k: v for k, v in METHODS.items() if k != "none"} | variants | {"own": {"kind": "own"}}
    found = study([], PARAMS | {"methods": own})
    styles = method_styles(found.methods)
    assert len(styles) == len(METHODS) + 3
    solvers = [f"solver{i}" for i in range(5)]
    routes = charts.route_styles(solvers, solvers).values()
    assert len({*routes}) == 5 and {style.dash for style in routes} < {*DASHES}
    for look in ("dash", "marker"):
        assert len({(style.hue, getattr(style, look)) for style in styles.values()}) == len(styles)


def test_a_relative_head_has_the_hue_of_its_kind_and_looks_otherwise() -> None:
    both = method_styles(study([]).methods)
    published, relative = both["ocm"], both["ocm_relative"]
    assert relative.hue == published.hue and relative.width < published.width
    assert relative.dash != published.dash and relative.marker == f"{published.marker}-open"
    assert (published.group, relative.group) == ("Learned", RELATIVE)
    alone = {"ocm_relative": METHODS["ocm_relative"]}
    assert method_styles(study([], PARAMS | {"methods": alone}).methods)["ocm_relative"].width > 3


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([3.0, 2.0], "too few points"),
        ([3.0] * 15, "too few points"),
        ([3.0] * 20, "all have levelled off"),
        (np.linspace(3, 1, 20).tolist(), "a loss still fell"),
    ],
)
def test_training_has_levelled_off_only_where_a_curve_can_tell(
    losses: list[float], told: str
) -> None:
    assert told in levelled({("heads", "ocm"): [*enumerate(losses)]})
