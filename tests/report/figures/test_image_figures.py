"""What the figures of images draw is what the results hold."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy import ndarray
from PIL import Image

from ocm_core.report.figures import charts, contrast_sheet, likelihood, tradeoff
from ocm_core.report.figures.chosen_timesteps import LONGEST, chosen_timesteps
from ocm_core.report.figures.deviations import predicted_deviations
from ocm_core.report.figures.differences import difference_curves
from ocm_core.report.figures.metric_curves import metric_curves
from ocm_core.report.figures.sample_sheets import sample_sheets
from ocm_core.report.page import pictures
from ocm_core.report.page.document import Figure, Picture, PictureMatrix, Plot
from ocm_core.report.statistics.estimates import mean, standard_error
from tests.report.synthetic_images import (
    BOTH,
    BOUNDS,
    GUIDED,
    RELATIVE,
    STEPS,
    image_results,
    images,
    results,
)

STYLES = images().styles


def panes(figure: Figure, **at: str) -> list[Plot]:
    return [
        pane
        for pane in figure.panes
        if isinstance(pane, Plot) and all(pane.at[key] == value for key, value in at.items())
    ]


def trace(pane: Plot, method: str) -> dict[str, Any]:
    (found,) = [one for one in pane.spec["data"] if one["meta"] == method]
    return dict(found)


def pixels(uri: str) -> ndarray:
    return np.asarray(Image.open(BytesIO(b64decode(uri.removeprefix("data:image/webp;base64,")))))


def test_lines_are_means_with_standard_errors() -> None:
    ddpm, ddim = metric_curves(image_results(), STYLES, ["fid"], "steps", "fid").panes
    assert (ddpm.title, ddim.title) == ("DDPM: FID", "DDIM: FID")
    assert isinstance(ddim, Plot)
    line = trace(ddim, "sn")
    cells = results()["fid"].sel({"sampler": "ddim", "method": "sn", "steps": [10, 25, 100]})
    assert line["x"] == [10, 25, 100]
    assert line["y"] == pytest.approx(mean(cells).values.ravel(), rel=1e-5)
    assert line["customdata"] == pytest.approx(standard_error(cells).values.ravel(), rel=1e-5)
    assert "error_y" not in line


def test_differences_are_paired_by_seed_and_have_their_own_errors() -> None:
    figure = difference_curves(image_results(), STYLES, "fid")
    assert figure is not None
    ddpm, ddim = panes(figure)
    line, cells = trace(ddim, "sn"), results()["fid"].sel(sampler="ddim", steps=[10, 25, 100])
    gaps = cells.sel({"method": "sn"}) - cells.sel({"method": "ocm"})
    assert line["y"] == pytest.approx(mean(gaps).values.ravel(), rel=1e-5)
    assert line["error_y"]["array"] == pytest.approx(standard_error(gaps).values.ravel(), rel=1e-5)
    assert not [one for one in ddpm.spec["data"] if one["meta"] == "ocm"]


def test_a_difference_outside_the_range_stands_at_its_edge_with_its_value() -> None:
    found = results()
    found["fid"].loc[{"sampler": "ddpm", "method": "beta", "steps": 10}] = 9e4
    figure = difference_curves(image_results(found=found), STYLES, "fid")
    assert figure is not None
    ddpm = panes(figure)[0]
    edge = ddpm.spec["layout"]["yaxis"]["range"][1]
    assert edge < 1e3
    assert trace(ddpm, "beta")["y"][trace(ddpm, "beta")["x"].index(10)] == pytest.approx(edge)
    assert "9e+04" in [note.get("text") for note in ddpm.spec["layout"]["annotations"]]


def test_samplers_that_differ_in_k_only_are_one_line() -> None:
    """The paper's few-step cells are a sampler of their own: K = 5 and 10, beside 10 to 100."""
    assert {"few", "probes"} <= set(results()["sampler"].values)
    ddpm, _ = panes(metric_curves(image_results(), STYLES, ["fid"], "steps", "fid"))
    assert trace(ddpm, "ocm")["x"] == list(STEPS)
    assert trace(ddpm, "ocm_3")["x"] == [10, 25, 100]


def test_a_diverged_seed_leaves_a_gap_and_a_cell_that_was_not_asked_for_none() -> None:
    found = results()
    found["fid"].loc[{"sampler": "ddpm", "method": "npr", "steps": 25, "seed": 2}] = np.nan
    ddpm, _ = panes(metric_curves(image_results(found=found), STYLES, ["fid"], "steps", "fid"))
    line = trace(ddpm, "npr")
    assert line["x"] == [10, 25, 100] and line["y"][1] is None and None not in line["y"][::2]


def test_samplers_stand_in_the_order_of_the_parameters() -> None:
    shuffled = results().sortby("sampler", ascending=True)
    assert shuffled["sampler"].values.tolist() == sorted(shuffled["sampler"].values)
    figure = metric_curves(image_results(found=shuffled), STYLES, ["fid"], "steps", "fid")
    assert [pane.title.split(":")[0] for pane in figure.panes] == ["DDPM", "DDIM"]


def test_axes_have_room_for_the_bars() -> None:
    values, errors = (xr.DataArray([x, y], dims="steps") for x, y in ((5.0, 6.0), (0.5, 3.0)))
    start, end = charts.value_axis("y", values, errors)["range"]
    assert start < 3.0 and end > 9.0
    _, end = charts.value_axis("y", values * [1, 100], errors * 200)["range"]
    assert end > np.log10(1200)


@pytest.mark.parametrize("level", [0.0, 4e-5, 7.0])
def test_a_horizontal_line_has_an_axis_around_it(level: float) -> None:
    start, end = charts.value_axis("y", xr.DataArray([level, level], dims="steps"))["range"]
    assert start < level < end and end - start < 0.2 * (level or 1.0)
    assert start > 0 or level == 0


def test_one_seed_has_no_bars() -> None:
    figure = metric_curves(
        image_results(found=results().isel(seed=[0])), STYLES, ["fid"], "steps", "fid"
    )
    assert "error_y" not in trace(panes(figure)[0], "ocm")
    assert "mean over 1 seed." in figure.caption


def test_every_measure_has_its_panes() -> None:
    figure = metric_curves(
        image_results(), STYLES, ["kid", "precision", "recall"], "steps", "others"
    )
    assert [len(panes(figure, measure=name)) for name in ("KID", "precision", "recall")] == [2] * 3
    assert len(figure.table.rows) == 3 * len(image_results().cells("kid"))


def test_guidance_has_an_axis_where_it_varies_and_a_switch_elsewhere() -> None:
    given = image_results(GUIDED)
    (at_ten,) = {
        pane.at["steps"] for pane in metric_curves(given, STYLES, ["fid"], "guidance", "g").panes
    }
    assert at_ten == "10"  # only there has the paper several scales
    ddpm, _ = panes(metric_curves(given, STYLES, ["fid"], "guidance", "g"))
    line = trace(ddpm, "ocm")
    assert line["x"] == [1.5, 1.75, 2.0, 3.0, 4.0]
    assert line["y"] == pytest.approx([12 / scale for scale in line["x"]], rel=1e-3)
    over_steps = metric_curves(given, STYLES, ["fid"], "steps", "s")
    assert {pane.at["guidance"] for pane in over_steps.panes} == {"1.5"}


def test_the_paths_go_through_both_measures_with_k_beside_them() -> None:
    figure = tradeoff.distance_against_likelihood(image_results(), STYLES)
    assert figure is not None
    (ddpm,) = panes(figure)
    ocm, npr = trace(ddpm, "ocm"), trace(ddpm, "npr")
    steps = np.array(STEPS)
    assert ocm["x"] == pytest.approx(2 + BOUNDS["ocm"] * (1 + 20 / steps), rel=1e-4)
    assert ocm["y"] == pytest.approx(2 + 100 / steps, rel=1e-3)
    assert [text for text in ocm["text"] if text] == ["K = 5", "10", "25", "100"]
    assert not any(npr["text"])  # one path with K beside it is enough
    assert ocm["error_x"]["array"] == [0.01] * len(STEPS)


@pytest.mark.parametrize(("name", "label"), [(BOTH, "ocm"), (RELATIVE, "ocm_relative")])
def test_the_path_of_the_claimed_ocm_alone_has_k_beside_it(name: str, label: str) -> None:
    figure = tradeoff.recall_against_distance(image_results(name), images(name).styles)
    assert figure is not None
    ddpm = panes(figure)[0]
    assert trace(ddpm, label)["text"][0].startswith("K = ")
    others = [one["text"] for one in ddpm.spec["data"] if one["meta"] != label]
    assert others and not any(text for texts in others for text in texts)


def test_a_bound_without_guidance_is_not_traded_for_guided_samples() -> None:
    bounds = results()[["nll", "nll_se"]].isel(steps=[1], method=[0])
    guided = results(GUIDED).merge(bounds, join="outer")
    assert tradeoff.distance_against_likelihood(image_results(GUIDED, found=guided), STYLES) is None


def test_bounds_and_their_terms_are_drawn_as_they_are() -> None:
    given = image_results()
    figure = likelihood.bound(images().bounds, STYLES, "1234 test images", density=False)
    even, optimal = panes(figure)
    assert (even.title, optimal.title) == ("DDPM", "DDPM_OPTIMAL")
    assert trace(optimal, "beta")["y"] == pytest.approx(
        2 + BOUNDS["beta"] / 2 * (1 + 20 / np.array(STEPS)), rel=1e-4
    )
    line = trace(even, "beta")
    assert line["y"] == pytest.approx(2 + BOUNDS["beta"] * (1 + 20 / np.array(STEPS)), rel=1e-4)
    assert "1234 test images in bits per dimension" in figure.caption
    assert "DDPM_OPTIMAL beside DDPM, in pairs: of 40 bounds 40 are lower, 0" in figure.caption
    terms = likelihood.terms(given.dataset, STYLES)
    assert terms is not None and [pane.title for pane in panes(terms)] == ["steps"]
    steps = trace(panes(terms)[0], "beta")["y"]
    assert [2 + 1e-5 + y for y in steps] == pytest.approx(line["y"], rel=1e-4)
    assert "is 2 bits/dim whatever the method and K" in terms.caption
    assert "is 1e-05 bits/dim whatever the method and K" in terms.caption


def test_bounds_above_the_first_chains_are_counted_beyond_noise_and_within() -> None:
    bounds = images().bounds.copy(deep=True)
    other = {"chain": "ddpm_optimal", "method": "beta"}
    for k, gap in ((5, 0.0005), (10, 0.002)):  # of an error of 0.001
        bounds["nll_difference"].loc[other | {"steps": k}] = gap
    caption = likelihood.bound(bounds, STYLES, "images", density=False).caption
    assert "of 40 bounds 38 are lower, 1 higher by less than a standard error" in caption
    assert caption.endswith(" 1 by more.")


def test_chosen_timesteps_are_drawn_by_method_and_number_of_steps() -> None:
    long = tuple(range(1, LONGEST + 2))
    chains = {"ocm": {2: (20, 1000), 1: (900,), len(long): long}, "beta": {1: (700,)}, "sn": {}}
    figure = chosen_timesteps(chains, STYLES, "128 training images")
    (dots,) = (trace(pane, "ocm") for pane in panes(figure, method="ocm"))
    assert (dots["x"], dots["y"]) == ([900, 20, 1000], [1, 2, 2])
    assert len(panes(figure)) == 2 and "128 training images" in figure.caption
    assert figure.table.rows == (
        ("ocm", 1, "900"),
        ("ocm", 2, "20 1000"),
        ("beta", 1, "700"),
    )


def test_a_negative_bound_has_a_linear_axis() -> None:
    given = replace(images(), dataset=results().assign(nll=results()["nll"] - 10))
    figure = likelihood.bound(given.bounds, STYLES, "10 test images", density=True)
    assert panes(figure)[0].spec["layout"]["yaxis"].get("type") != "log"
    assert "bits of a density" in figure.caption


def test_sheets_hold_the_very_pixels() -> None:
    source = np.random.Generator(np.random.Philox(0))
    grey = source.integers(0, 256, (5, 4, 6), np.uint8)
    colour = source.integers(0, 256, (4, 4, 6, 3), np.uint8)
    for drawn in (grey, colour):
        figure = sample_sheets({("ddpm", "ocm", 10): drawn}, drawn)
        test, sheet = figure.panes
        assert isinstance(sheet, Picture) and isinstance(test, Picture) and test.uri == sheet.uri
        shown = pixels(sheet.uri)
        assert shown.shape == (sheet.height, sheet.width, 4) == (9, 13, 4)  # WebP has no grey
        third = drawn[2] if drawn.ndim == 4 else np.stack([drawn[2]] * 3, -1)
        assert np.array_equal(shown[5:, :6, :-1], third)
        assert (shown[4, :, -1] == 0).all() and (shown[:4, :6, -1] == 255).all()


def test_one_k_and_method_at_a_time_can_be_seen() -> None:
    figure = sample_sheets(images().chain_samples, None)
    kinds = {control.name: control.kind for control in figure.controls}
    assert kinds == {"sampler": "one", "steps": "scale", "method": "several"}
    assert [control.values for control in figure.controls][:2] == [
        ("DDPM", "DDIM"),
        tuple(map(str, STEPS)),
    ]


ATTRS = {"split": "test"}


def _deviations(channels: int) -> xr.DataArray:
    """Over two timesteps and three images of 4 by 4: heads say 1, one probe 3, many probes 2."""
    values = {"x_t": -1.0, "ocm": 1.0, "probes_1": 3.0, "probes_100": 2.0}
    x = np.stack([np.full((2, 3, channels, 4, 4), level) for level in values.values()], axis=1)
    dims = ("t", "source", "image", "axis0", "axis1", "axis2")
    return xr.DataArray(x, dims=dims, coords={"t": [5, 50], "source": list(values)}, attrs=ATTRS)


def test_deviations_share_a_scale_that_ends_at_the_most_probes() -> None:
    figure = predicted_deviations(_deviations(3).isel(source=[0, 3, 1, 2]))  # in any order
    pane = figure.panes[0]
    assert isinstance(pane, PictureMatrix)
    rows = dict(pane.rows)
    assert list(rows) == ["xₜ", "ocm", "M = 1", "M = 100"]
    assert pane.columns == ("t = 5\n0 to 2", "t = 50\n0 to 2")
    shown = {name: pixels(found[0].uri)[0, 0].tolist() for name, found in rows.items()}
    assert shown["xₜ"] == [0, 0, 0]
    assert shown["M = 100"] == shown["M = 1"] == [253, 231, 37]  # the end, and what is beyond it
    assert shown["ocm"] == pictures.colours(np.array([[0.5]]), 1.0)[0, 0].tolist()
    assert (5, "ocm", 1.0, 1.0) in figure.table.rows and (
        50,
        "M = 1",
        3.0,
        1.0,
    ) in figure.table.rows


def test_latents_are_no_pictures_but_their_deviations_are() -> None:
    pane = predicted_deviations(_deviations(4)).panes[0]
    assert isinstance(pane, PictureMatrix)
    assert [name for name, _ in pane.rows] == ["ocm", "M = 1", "M = 100"]


@pytest.mark.parametrize(("room", "shown"), [(1, 1), (5, 5), (7, 6), (11, 6), (12, 12), (30, 12)])
def test_the_first_sheet_has_no_empty_place(
    room: int, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number of images there is room for."""
    monkeypatch.setattr(contrast_sheet, "BUDGET", room * 2 * 4 * 4 * 3)  # a route and the test set
    drawn = np.full((12, 4, 4, 3), 99, np.uint8)
    routes = {"ddpm, ocm": ("ddpm", "ocm")}
    monkeypatch.setattr(pictures, "_REDUCTIONS", (1,))
    figure = contrast_sheet.image_sheet({("ddpm", "ocm", 10): drawn}, routes, [10], drawn, "")
    assert figure is not None and f"The first {shown} " in figure.caption
    (matrix,) = [pane for pane in figure.panes if isinstance(pane, PictureMatrix)]
    for _, cells in matrix.rows:
        for picture in cells:
            assert isinstance(picture, Picture)
            assert (picture.width + 1) * (picture.height + 1) == shown * 5 * 5
