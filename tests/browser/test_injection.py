"""Text from parameters stays text in a browser, wherever a page can have it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser

from ocm_core.report.document import (
    DataTable,
    Facts,
    Figure,
    Page,
    Picture,
    PictureMatrix,
    Plot,
    Section,
)
from ocm_core.report.render import render
from ocm_core.report.style import LineStyle
from tests.browser.viewer import opened

ATTACK = (
    "'\"></script><script>window.pwned = 1</script>"
    "<img src=x onerror='window.pwned = 2'><b id=injected>&lt;{{ 7 * 7 }}"
)
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


def test_text_stays_text(browser: Browser, tmp_path: Path) -> None:
    table = DataTable(ATTACK, (ATTACK,), ((ATTACK,),))
    trace = {"x": [1, 2], "y": [3, 4], "name": ATTACK, "meta": ATTACK, "text": [ATTACK] * 2}
    axis = {"title": {"text": ATTACK}}
    spec = {"data": [trace | {"mode": "lines+text"}], "layout": {"xaxis": axis}}
    picture = Picture(ATTACK, PIXEL, 1, 1)
    panes = (
        Plot(ATTACK, spec),
        PictureMatrix(ATTACK, (ATTACK,), ((ATTACK, (picture,)),), {ATTACK: ATTACK}),
        PictureMatrix(ATTACK, (ATTACK,), ((ATTACK, (picture,)),), {ATTACK: "other"}),
    )
    figure = Figure(
        id="figure",
        caption=ATTACK,
        label=ATTACK,
        panes=panes,
        table=table,
        legend={ATTACK: LineStyle("Learned", "blue", "circle")},
        control=ATTACK,
    )
    blocks = (ATTACK, figure, table, Facts({ATTACK: ATTACK}))
    file = tmp_path / "page.html"
    file.write_text(render(Page(ATTACK, ATTACK, (Section("s", ATTACK, blocks),), (ATTACK,))))
    with opened(browser, file) as page:
        page.locator(".legend button").click()
        page.locator("fieldset label").last.click()
        page.locator(".plot .points, .plot .scatterlayer").first.hover(force=True)
        assert page.evaluate("window.pwned") is None
        assert page.locator("#injected").count() == 0
        assert page.locator("img").count() == 2
        assert page.locator("h1").text_content() == ATTACK
        assert page.locator("dd").text_content() == ATTACK
