"""Every page that people see, in a browser: drawn, usable by mouse and keyboard, on any screen."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Locator, Page

from ocm_core.report.page.style import palettes
from tests.browser.viewer import DESKTOP, PHONE, figures, opened, seen, unfold

GUIDED = {"fid-guidance", "recall-guidance"}
EXPECTED = {
    "toy_mog9": {"density", "covariance-error", "mmd-ddpm", "mmd-ddim", "samples"},
    "tiny_digits": {
        "fid",
        "other-measures",
        "nll",
        "nll-terms",
        "chosen-timesteps",
        "fid-nll",
        "recall-fid",
    },
    "imagenet256_smoke": {"fid", "chosen-timesteps", "recall-fid", *GUIDED},
}
OF_IMAGES = {"samples", "deviation"}
LIMIT = 12_000_000


@pytest.fixture(scope="module", params=EXPECTED)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def file(page_of: Callable[[str], Path], name: str) -> Path:
    return page_of(name)


@pytest.fixture(scope="module", params=[PHONE, DESKTOP])
def page(browser: Browser, file: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Open for all tests: they leave it as they find it."""
    with opened(browser, file, request.param) as shown:
        unfold(shown)
        yield shown


def test_the_figures_are_there(page: Page, name: str, file: Path) -> None:
    expected = EXPECTED[name] | {"training-curves"} | (OF_IMAGES if "toy" not in name else set())
    assert expected <= set(figures(page))
    assert file.stat().st_size < LIMIT


def test_every_figure_is_drawn_with_data_at_every_choice(page: Page) -> None:
    """All values of all sliders and radio buttons, in every combination."""
    for figure in figures(page):
        assert seen(page, figure)
        shown = set()
        possible = [*product(*choices(page, figure))]
        for choice in [*possible, possible[0]]:
            page.evaluate("(ids) => ids.forEach(([i, v]) => choose(i, v))", list(choice))
            assert page.evaluate("(id) => undrawn(document.getElementById(id))", figure) == []
            shown |= set(seen(page, figure))
        everything = page.locator(f"#{figure} .pane").count()
        assert len(shown) == everything, f"{figure}: {everything - len(shown)} panes never show"


def choices(page: Page, figure: str) -> list[list[tuple[str, str]]]:
    """By control, what can be chosen: the number of an input of the page, and its value."""
    page.evaluate(
        """() => {
          const inputs = [...document.querySelectorAll("input")];
          window.choose = (index, value) => {
            const input = inputs[index];
            if (input.type === "range") input.value = value;
            else input.checked = true;
            input.dispatchEvent(new Event("input", { bubbles: true }));
          };
        }"""
    )
    found = page.evaluate(
        """(id) => {
          const all = [...document.querySelectorAll("input")];
          const own = all.filter((i) => document.getElementById(id).contains(i));
          return own.map((i) => [i.type, i.name, all.indexOf(i), Number(i.max)]);
        }""",
        figure,
    )
    ranges = [
        [(i, str(v)) for v in range(most + 1)] for kind, _, i, most in found if kind == "range"
    ]
    groups = dict.fromkeys(group for kind, group, *_ in found if kind == "radio")
    radios = [
        [(i, "") for kind, g, i, _ in found if kind == "radio" and g == group] for group in groups
    ]
    return ranges + radios


def test_sliders_follow_the_keyboard_and_the_mouse(page: Page) -> None:
    for slider in page.locator("input[type=range]").all():
        figure = figure_of(slider)
        values = json.loads(slider.get_attribute("data-values") or "")
        first = seen(page, figure)
        slider.focus()
        page.keyboard.press("ArrowRight")
        assert told(slider) == values[1] and seen(page, figure) != first
        page.keyboard.press("End")
        assert told(slider) == values[-1]
        page.keyboard.press("Home")
        assert told(slider) == values[0] and seen(page, figure) == first
        box = slider.bounding_box()
        assert box is not None
        slider.click(position={"x": box["width"] - 3, "y": box["height"] / 2})
        assert told(slider) == values[-1] and seen(page, figure) != first
        slider.click(position={"x": 3, "y": box["height"] / 2})
        assert told(slider) == values[0] and seen(page, figure) == first


def told(slider: Locator) -> str:
    """What is written beside the slider, which is what a screen reader says."""
    written = slider.locator("xpath=following-sibling::output").inner_text()
    assert slider.get_attribute("aria-valuetext") == written
    return written


def figure_of(control: Locator) -> str:
    return control.evaluate("(element) => element.closest('figure').id")


def test_radio_buttons_follow_the_keyboard_and_the_mouse(page: Page) -> None:
    for group in page.locator("fieldset:has([type=radio])").all():
        figure = figure_of(group)
        first, second = group.locator("input").all()[:2]
        before = seen(page, figure)
        first.focus()
        page.keyboard.press("ArrowRight")
        assert second.is_checked() and not first.is_checked()
        assert seen(page, figure) != before
        group.locator("label").first.click()
        assert first.is_checked() and seen(page, figure) == before


def test_boxes_follow_the_keyboard_and_the_mouse(page: Page, name: str) -> None:
    groups = page.locator("fieldset:has([type=checkbox])").all()
    assert groups or "toy" in name
    for group in groups:
        figure = figure_of(group)
        everything = seen(page, figure)
        for box in group.locator("input").all():
            box.focus()
            page.keyboard.press("Space")
            only = [pane for pane in everything if pane.endswith(box.input_value())]
            kept = [pane for pane in seen(page, figure) if pane.endswith(box.input_value())]
            assert box.is_checked() and kept == only
            assert len(seen(page, figure)) < len(everything)
            page.keyboard.press("Space")
        assert seen(page, figure) == everything
        group.locator("label").first.click()
        assert len(seen(page, figure)) < len(everything)
        group.locator("label").first.click()
        assert seen(page, figure) == everything


OPACITIES = """(button) => [...button.closest("figure").querySelectorAll(".plot")]
  .filter((plot) => plot.offsetWidth > 0)
  .flatMap((plot) => plot.data.map((t) => [t.meta, t.opacity ?? 1]))"""


def test_the_legend_brings_out_a_method(page: Page) -> None:
    for legend in page.locator(".legend").all():
        button = legend.locator("button").first
        before = button.evaluate(OPACITIES)
        method = button.get_attribute("data-method")
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") == "true"
        drawn = button.evaluate(OPACITIES)
        assert all((opacity == 1) == (meta == method) for meta, opacity in drawn if meta)
        assert len({meta for meta, _ in drawn}) > 1
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        page.mouse.move(0, 0)  # pointing at it brings it out, too
        assert button.evaluate(OPACITIES) == before


def test_the_keyboard_alone_reaches_everything(page: Page) -> None:
    """Of radio buttons the chosen one: the arrows go to the others."""
    wanted = page.evaluate(
        """() => {
          const all = document.querySelectorAll("a, button, input, summary, .scroll");
          window.waiting = new Set([...all].filter((e) =>
            e.checkVisibility() && !(e.type === "radio" && !e.checked)));
          addEventListener("focusin", (event) => waiting.delete(event.target));
          return waiting.size;
        }"""
    )
    assert wanted > 20
    for _ in range(wanted + 1):
        page.keyboard.press("Tab")
    assert page.evaluate("[...waiting].map((e) => e.outerHTML.slice(0, 80))") == []


def test_nothing_is_wider_than_the_screen(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    width = page.viewport_size["width"] if page.viewport_size else 0
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
    outside = page.evaluate(
        """() => [...document.querySelectorAll("main *, header *")]
          .filter((e) => !e.closest(".scroll, .unseen, .skip, svg") && e.checkVisibility())
          .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)
          .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, td, th, figcaption, dd, label, button, svg text')]"
        ".filter((e) => e.checkVisibility()).map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 10


def test_the_data_of_every_figure_can_be_saved(page: Page, tmp_path: Path) -> None:
    for figure in figures(page):
        details = page.locator(f"#{figure} details")
        link = details.locator(".download a")
        header, *rows = read_csv(unquote((link.get_attribute("href") or "").partition(",")[2]))
        assert header == details.locator("thead th").all_text_contents()
        assert len(rows) == details.locator("tbody tr").count() > 0
    details.evaluate("(element) => { element.open = false; }")
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    with page.expect_download() as download:
        link.click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert read_csv(saved.read_text()) == [header, *rows]


def read_csv(text: str) -> list[list[str]]:
    return [*csv.reader(text.splitlines())]


def test_charts_have_the_colours_of_the_scheme(browser: Browser, file: Path) -> None:
    with opened(browser, file, color_scheme="light") as page:
        unfold(page)
        for scheme in ("light", "dark", "light"):
            page.emulate_media(color_scheme=scheme)
            assert_coloured(page, scheme)


def test_on_paper_charts_are_light_and_keep_to_their_columns(browser: Browser, file: Path) -> None:
    with opened(browser, file, color_scheme="dark") as page:
        unfold(page)
        assert page.pdf().startswith(b"%PDF")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # charts are drawn on the screen
        page.emulate_media(media="print")
        assert_coloured(page, "light")
        places = page.evaluate(
            """[...document.querySelectorAll("figure")].flatMap(visible).map((pane) => [
              pane.getBoundingClientRect(),
              pane.querySelector("svg.main-svg, img, .panel svg").getBoundingClientRect(),
            ])"""
        )
        assert len(places) >= page.locator(".plot").count()
        for pane, drawing in places:
            assert 0 < drawing["width"] <= pane["width"] + 1
            assert 0 < drawing["height"] <= pane["height"] + 1
        assert page.locator("figcaption").first.is_visible()
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert_coloured(page, "dark")


def assert_coloured(page: Page, scheme: str) -> None:
    """The page, and every line and every word of the charts that can be seen, before long."""
    palette = palettes()[scheme]
    page.wait_for_function(
        """(known) => [...document.querySelectorAll(".plot")]
          .filter((plot) => plot.offsetWidth > 0)
          .flatMap((plot) => [plot.layout.font.color, ...plot.data.map((t) => t.line?.color)])
          .every((colour) => !colour || known.includes(colour))""",
        arg=list(palette.values()),
    )
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert [ground, ink] == [rgb(palette["page"]), rgb(palette["ink"])]


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_headings_go_down_one_at_a_time(page: Page) -> None:
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
