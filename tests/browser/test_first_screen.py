"""What visitors see, on a desk and on a phone, in light and in dark: pages of the real size.

As the code draws them now, and as they are kept in Git.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from ocm_core.overview.kept import bundle, read_kept
from ocm_core.report import image_page, toy_page
from ocm_core.report.page.document import Headline
from ocm_core.report.page.document import Page as Document
from ocm_core.report.page.render import render
from ocm_core.report.page.result_table import ResultTable
from tests.browser.viewer import DESKTOP, PHONE, figures, opened, unfold
from tests.pipeline.conftest import ROOT
from tests.report import committed, synthetic_images, synthetic_toy

SCREEN = 900  # pixels
HIGHEST = 6000
DIGITS = "digits"
DOCUMENTS: dict[str, Callable[[], Document]] = {
    DIGITS: committed.digits_page,
    "mnist_latent": lambda: image_page.page(with_long_names("mnist_latent", "diverse_2m")),
    "cifar10_small": lambda: image_page.page(synthetic_images.images("cifar10_small")),
    "toy_mog9": lambda: toy_page.page(synthetic_toy.toy()),
}
KEPT = {f"{name} as kept": name for name in ("digits", "toy_mog9", "cifar10_small")}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def made(name: str) -> Path:
        path = folder / f"{name}.html"
        html = kept_page(KEPT[name]) if name in KEPT else render(DOCUMENTS[name]())
        path.write_text(html, "utf-8")
        return path

    return made


def with_long_names(name: str, best: str) -> image_page.ImagePageInputs:
    """A sampler with a long name is the best of ours."""
    given = synthetic_images.images(name)
    found, at = given.dataset.copy(deep=True), {"sampler": best}
    found["fid"].loc[at] *= 0.5
    found["recall"].loc[at] += 0.2
    return replace(given, dataset=found)


def kept_page(name: str) -> str:
    """With the copy of Plotly that pages share."""
    page = read_kept(ROOT, name)
    first, second = re.split(r"<script src=[^>]*></script>", page.html)
    return f"{first}<script>{bundle({name: page})}</script>{second}"


@pytest.fixture(
    scope="module",
    params=[(width, scheme) for width in (DESKTOP, PHONE) for scheme in ("light", "dark")],
    ids=lambda given: f"{given[0]}-{given[1]}",
)
def digits(
    browser: Browser, file: Callable[[str], Path], request: pytest.FixtureRequest
) -> Iterator[Page]:
    width, scheme = request.param
    with opened(browser, file(DIGITS), width, color_scheme=scheme) as page:
        unfold(page)
        yield page


@pytest.mark.parametrize("name", [*DOCUMENTS, *KEPT])
def test_the_first_screen_holds_samples_frontier_and_table(
    browser: Browser, file: Callable[[str], Path], name: str
) -> None:
    with opened(browser, file(name)) as page:
        for part in (
            "#sheet .matrix",
            "#frontier .plot:visible",
            "#headline table",
            "#headline .ticks",
        ):
            box = page.locator(part).last.bounding_box()
            assert box is not None and box["y"] + box["height"] <= SCREEN, part
        assert page.evaluate("undrawn(document.getElementById('frontier'))") == []
        assert page.evaluate("undrawn(document.getElementById('sheet'))") == []
        wide = "document.querySelector('#headline .scroll').scrollWidth"
        assert page.evaluate(f"{wide} <= document.querySelector('#headline .scroll').clientWidth")
        assert page.evaluate("document.documentElement.scrollHeight") <= HIGHEST
        assert page.locator("details[open]").count() == 0


@pytest.mark.parametrize("name", DOCUMENTS)
def test_on_a_phone_the_three_things_come_first_and_nothing_sticks_out(
    browser: Browser, file: Callable[[str], Path], name: str
) -> None:
    with opened(browser, file(name), PHONE) as page:
        tops = [
            page.locator(part).first.bounding_box()
            for part in ("#sheet", "#frontier", "#headline", "nav", ".fold")
        ]
        places = [box["y"] for box in tops if box]
        assert len(places) == len(tops) and places == sorted(places)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE


def test_every_figure_is_drawn(digits: Page) -> None:
    for figure in figures(digits):
        assert digits.evaluate("(id) => undrawn(document.getElementById(id))", figure) == []


def test_nothing_sticks_out(digits: Page) -> None:
    width = digits.evaluate("innerWidth")
    assert digits.evaluate("document.documentElement.scrollWidth") == width
    outside = digits.evaluate(
        """() => [...document.querySelectorAll("body *")]
          .filter((e) => !e.closest(".scroll, .unseen, .skip, svg") && e.checkVisibility())
          .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []


# Of every chart: words that stand on one another, and words that leave the chart.
CLASHES = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
  if (plot.offsetWidth === 0) return [];
  const frame = plot.getBoundingClientRect();
  const words = [...plot.querySelectorAll(
    ".xtick text, .ytick text, .annotation-text-g text, .textpoint text, .xtitle, .ytitle")]
    .filter((e) => e.textContent.trim() && e.checkVisibility())
    .map((e) => [e.textContent, e.getBoundingClientRect()]);
  const found = words.filter(([_, a]) => a.left < frame.left - 2 || a.right > frame.right + 2)
    .map(([name]) => `${plot.id}: ${name} is cut off`);
  words.forEach(([one, a], i) => words.slice(i + 1).forEach(([other, b]) => {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (width > 2 && height > 4) found.push(`${plot.id}: ${one} on ${other}`);
  }));
  return found;
})"""


def test_no_label_stands_on_another(digits: Page) -> None:
    assert digits.evaluate(CLASHES) == []
    first = "document.querySelector('#frontier .plot')"
    digits.evaluate(
        f"Plotly.relayout({first}, {{'xaxis.ticktext': Array(7).fill('x'.repeat(40))}})"
    )
    assert digits.evaluate(CLASHES), "labels that do overlap are not seen"
    digits.evaluate("dispatchEvent(new Event('afterprint'))")  # drawn again
    assert digits.evaluate(CLASHES) == []


def test_keys_of_legends_do_not_overlap(digits: Page) -> None:
    clashes = digits.evaluate(
        """() => [...document.querySelectorAll(".legend")].flatMap((legend) => {
          const keys = [...legend.querySelectorAll(".key, .group-name")]
            .map((e) => [e.textContent.trim(), e.getBoundingClientRect()]);
          return keys.flatMap(([one, a], i) => keys.slice(i + 1)
            .filter(([_, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
              && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
            .map(([other]) => `${one} on ${other}`));
        })"""
    )
    assert clashes == []


def test_what_is_cut_off_at_the_side_says_so(digits: Page) -> None:
    boxes = digits.evaluate(
        """() => [...document.querySelectorAll(".scroll")].filter((e) => e.checkVisibility())
          .map((e) => [
            e.scrollWidth > e.clientWidth + 1,
            getComputedStyle(e, "::after").content,
          ])"""
    )
    assert boxes
    for is_cut, sign in boxes:
        assert ("more to the right" in sign) == is_cut


def tables(document: Document) -> dict[str, ResultTable]:
    found = [b.table if isinstance(b, Headline) else b for b in document.blocks]
    return {table.name: table for table in found if isinstance(table, ResultTable)}


def test_buttons_copy_what_they_say(browser: Browser, file: Callable[[str], Path]) -> None:
    given = tables(committed.digits_page())
    assert {"headline", "fid-by-steps", "recall-by-steps", "nll-by-steps"} <= {*given}
    allowed = ["clipboard-read", "clipboard-write"]
    with opened(browser, file(DIGITS), permissions=allowed) as page:
        unfold(page)
        for name, table in given.items():
            results = page.locator(".results", has=page.locator(f"#table-{name}"))
            for format, text in table.copies.items():
                button = results.locator(f'[data-format="{format}"]')
                assert button.inner_text() == format
                button.click()
                button.get_by_text("Copied").wait_for()
                assert page.evaluate("navigator.clipboard.readText()") == text


def test_a_label_leads_to_its_entry(browser: Browser, file: Callable[[str], Path]) -> None:
    with opened(browser, file(DIGITS)) as page:
        page.locator("#headline tbody a", has_text="beta_tilde").first.click()
        entry = page.locator("#about-beta-tilde")
        entry.wait_for()
        assert "Σ = β̃" in entry.inner_text()
        page.wait_for_function(  # it scrolls there
            "document.getElementById('about-beta-tilde').getBoundingClientRect().top < innerHeight"
        )


COLOURS = """() => document.querySelector("#fid-differences .plot").data
  .map((trace) => [trace.meta, trace.opacity ?? 1])"""


def test_grey_lines_come_out_when_they_are_pointed_at(
    browser: Browser, file: Callable[[str], Path]
) -> None:
    with opened(browser, file(DIGITS)) as page:
        unfold(page)
        page.locator("#fid-differences").scroll_into_view_if_needed()
        before = dict(page.evaluate(COLOURS))
        quiet = [method for method, opacity in before.items() if opacity < 1]
        assert quiet and len(quiet) < len(before)
        page.locator(f'#fid-differences .legend [data-method="{quiet[0]}"]').hover()
        pointed = dict(page.evaluate(COLOURS))
        assert pointed[quiet[0]] == 1 and all(pointed[m] < 1 for m in pointed if m != quiet[0])
        page.mouse.move(0, 0)
        assert dict(page.evaluate(COLOURS)) == before
        point = page.locator("#fid-differences .plot .trace .point").last
        point.hover(force=True)
        page.wait_for_function(
            f"({COLOURS})().filter(([_, opacity]) => opacity === 1).length === 1"
        )
