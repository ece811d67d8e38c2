"""What the figures draw is what the results hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ocm_core.diffusion import schedule
from ocm_core.report.figures import toy_curves
from ocm_core.report.figures.densities import noisy_marginals
from ocm_core.report.figures.method_styles import method_styles
from ocm_core.report.figures.sample_panels import sample_panels
from ocm_core.report.page.document import BOX, Figure, Panels, Plot
from tests.report.synthetic_toy import (
    DDIM,
    ERRORS,
    JITTER,
    LEVELS,
    OCM,
    SN,
    STEPS,
    experiment,
    results,
    toy,
)

STYLES = method_styles(experiment())


def traces(figure: Figure, pane: int, method: str) -> list[dict[str, Any]]:
    plot = figure.panes[pane]
    assert isinstance(plot, Plot)
    return [trace for trace in plot.spec["data"] if trace.get("meta") == method]


def test_mmd_lines_are_means_with_standard_errors() -> None:
    figure = toy_curves.mmd(results(), STYLES, "ddim", count=1000)
    (line,) = traces(figure, 1, SN)
    assert (line["x"], line["y"]) == (list(STEPS), pytest.approx([LEVELS[SN]] * len(STEPS)))
    error = np.std([1, -1, 0.5, -0.5, 0], ddof=1) / np.sqrt(5) * JITTER
    assert line["error_y"]["array"] == pytest.approx([error] * len(STEPS), rel=1e-5)
    assert "5 seeds" in figure.caption and "1000 samples" in figure.caption


def test_only_methods_of_the_sampler_are_drawn_and_listed() -> None:
    figure = toy_curves.mmd(results(), STYLES, "ddim", count=1000)
    assert set(figure.legend or {}) == {*DDIM, toy_curves.FLOOR}
    assert not traces(figure, 0, "beta")


def test_a_mean_over_a_diverged_seed_is_a_gap_and_not_a_mean_of_the_others() -> None:
    data = results()
    data["mmd"].loc[{"sampler": "ddpm", "method": OCM, "steps": 3, "seed": 2}] = np.nan
    (line,) = traces(toy_curves.mmd(data, STYLES, "ddpm", count=10), 0, OCM)
    assert line["y"][STEPS.index(3)] is None and line["y"][STEPS.index(5)] is not None


def test_the_axis_reaches_down_to_the_floor() -> None:
    data = results()
    data["mmd_floor"][:] = 1e-4
    plot = toy_curves.mmd(data, STYLES, "ddpm", count=10).panes[0]
    assert isinstance(plot, Plot)
    assert plot.spec["layout"]["yaxis"]["range"][0] < -4


def test_rounding_does_not_stretch_the_axis_and_is_told() -> None:
    figure = toy_curves.covariance_error(results(), STYLES, points=100)
    plot = figure.panes[0]
    assert isinstance(plot, Plot)
    assert plot.spec["layout"]["yaxis"]["range"][0] > np.log10(1e-3 * ERRORS["exact_diag"]) + 3
    assert "below the axis, with the true score: exact_diag, exact_full." in figure.caption


def test_a_band_that_reaches_zero_stays_on_the_logarithmic_axis() -> None:
    data = results()
    data["covariance_error_se"][:] = 10.0
    band, _line = traces(toy_curves.covariance_error(data, STYLES, points=100), 0, OCM)
    assert min(band["y"]) > 0


def test_panels_count_what_their_frame_leaves_out() -> None:
    points = np.array([[0.0, 0.0], [5.0, 0.0], [np.nan, 0.0], [1.0, -1.0]])
    figure = sample_panels({("ddpm", 5): {OCM: points}}, points[:1], 1.0, STYLES, "learned")
    grid = figure.panes[0]
    assert isinstance(grid, Panels)
    data, ocm = grid.panels
    assert (data.note, ocm.note) == ("", "2 outside")
    assert ocm.path == f"M{BOX // 2} {BOX // 2}h0M{BOX} {BOX}h0"


def test_the_peaks_are_those_of_the_mixture_and_of_pure_noise() -> None:
    given = toy()
    figure = noisy_marginals(given.truth, schedule.build("linear", 1000), given.test, reach=8.0)
    peak = {row[0]: row[3] for row in figure.table.rows}
    assert peak[1000] == pytest.approx(1 / (2 * np.pi), rel=1e-3)
    assert peak[0] == pytest.approx(1 / (9 * 2 * np.pi * 0.1**2), rel=0.05)
