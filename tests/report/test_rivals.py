"""Solvers of diffusers and presets on the page: samplers, and a method, like any other."""

from __future__ import annotations

import pytest

from ocm_core.pipeline.table import plots
from ocm_core.report import metrics, plot_data
from ocm_core.report.figures.method_styles import method_styles
from ocm_core.report.image_page import page
from ocm_core.report.page.document import Page
from ocm_core.report.page.render import render
from tests.report.markup import without_plotly
from tests.report.synthetic_images import RIVALS, experiment, images, results


@pytest.fixture(scope="module")
def made() -> Page:
    return page(images(RIVALS))


def test_the_metrics_have_their_names() -> None:
    nested = metrics.nested(results(RIVALS))
    assert nested["fid"]["unipc"].keys() == {"none"}
    assert nested["fid"]["quality"]["delta"]["K10"] == pytest.approx(1.5 * 12, rel=0.01)
    assert nested["fid"]["unipc"]["none"]["K10"] == pytest.approx(0.9 * 12, rel=0.01)


def test_plot_data_have_a_file_a_sampler() -> None:
    frames, named = plot_data.frames(results(RIVALS)), plots(experiment(RIVALS))
    assert {"fid-unipc-learned", "recall-quality-learned"} <= frames.keys() & named.keys()
    assert [*named["fid-unipc-learned"][1]] == ["none"]
    assert "none" in frames["fid-unipc-learned"].csv.splitlines()[0]


def test_the_page_shows_them_along_network_evaluations(made: Page) -> None:
    own = without_plotly(render(made))
    assert "UNIPC" in own and "QUALITY" in own
    assert "network evaluations K" in render(made)
    assert "a solver of diffusers, whose noise is its own if it draws any" in own


def test_none_has_a_line_of_its_own() -> None:
    styles = method_styles(experiment(RIVALS))
    look = styles.pop("none")
    assert (look.dash, look.marker) not in {(other.dash, other.marker) for other in styles.values()}
