"""Text from parameters stays text in a browser, on the page of an experiment and in the index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser

from ocm_core.report.figures.method_styles import line_styles
from ocm_core.report.page.document import (
    Control,
    DataTable,
    Facts,
    Figure,
    Page,
    Picture,
    Plot,
    Section,
)
from ocm_core.report.page.render import render
from tests.browser.conftest import OVERLAYS
from tests.browser.viewer import opened
from tests.pipeline.conftest import Project

ATTACK = (
    "'\"></script><script>window.pwned = 1</script>"
    "<img src=x onerror='window.pwned = 2'><b id=injected>&lt;{{ 7 * 7 }}"
)
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


@pytest.fixture(scope="module")
def attacked(finished: Callable[..., Project], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Only the report is made again."""
    made = finished("tiny_digits", OVERLAYS["tiny_digits"])
    project = made.copy(tmp_path_factory.mktemp("attacked") / "project")
    overlay = OVERLAYS["tiny_digits"] | {"report": {"title": ATTACK, "summary": ATTACK}}
    file = project.root / "params/experiment/tiny_digits.yaml"
    file.write_text(f"# @package _global_\n{yaml.safe_dump(overlay)}")
    project.run("ocm", "params", "--write")
    project.run("snakemake", "--cores", "1", "reports/tiny_digits.html")
    project.run("ocm", "index")
    return project


@pytest.mark.parametrize(("name", "heading"), [("tiny_digits", "h1"), ("index", "h2")])
def test_title_and_summary_stay_text(
    browser: Browser, attacked: Project, name: str, heading: str
) -> None:
    with opened(browser, attacked.root / f"reports/{name}.html") as page:
        assert page.evaluate("window.pwned") is None
        assert page.locator("#injected").count() == 0
        assert page.locator(heading).first.text_content() == ATTACK
        assert page.locator("p", has_text="window.pwned = 2").first.text_content() == ATTACK


def test_text_stays_text_wherever_a_page_can_have_it(browser: Browser, tmp_path: Path) -> None:
    table = DataTable(ATTACK, (ATTACK,), ((ATTACK,),))
    trace = {"x": [1, 2], "y": [3, 4], "name": ATTACK, "meta": ATTACK, "text": [ATTACK] * 2}
    axis = {"title": {"text": ATTACK}}
    spec = {"data": [trace | {"mode": "lines+text"}], "layout": {"xaxis": axis}}
    picture = Picture(ATTACK, ATTACK, PIXEL, 1, 1, {"c": ATTACK})
    panes = (Plot(ATTACK, spec), picture, replace(picture, at={"c": "other"}))
    figure = Figure(
        id="figure",
        caption=ATTACK,
        label=ATTACK,
        panes=panes,
        table=table,
        legend=line_styles({ATTACK: ATTACK}),
        controls=(Control("c", ATTACK, (ATTACK, "other"), "one"),),
    )
    blocks = (ATTACK, figure, table, Facts({ATTACK: ATTACK}))
    file = tmp_path / "page.html"
    file.write_text(render(Page(ATTACK, ATTACK, (ATTACK,), (Section("s", ATTACK, blocks),))))
    with opened(browser, file) as page:
        page.locator(".legend button").click()
        page.locator("fieldset label").last.click()
        page.locator(".plot .points, .plot .scatterlayer").first.hover(force=True)
        assert page.evaluate("window.pwned") is None
        assert page.locator("#injected").count() == 0
        assert page.locator("img").count() == 2
        assert page.locator("h1").text_content() == ATTACK
        assert page.locator("dd").text_content() == ATTACK
