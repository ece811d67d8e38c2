"""Pages that people see, in a browser: drawn, usable by mouse and keyboard, on any screen."""

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, Page

from ocm_core.report import document
from ocm_core.report.charts import PALETTES, LineStyle
from ocm_core.report.folder import read_folder
from ocm_core.report.page import index
from ocm_core.report.page import page as document_of
from ocm_core.report.render import render
from tests.report.made_up import ROOT, tables

PHONE, DESKTOP = 390, 1400
SCREEN, HIGHEST, LIMIT = 900, 6000, 12_000_000
FIRST = "digits"
OTHERS = ("toy_mog9", "mnist_latent", "cifar10_small")
SHOWN = [
    (FIRST, DESKTOP),
    *(pytest.param((name, DESKTOP), marks=pytest.mark.slow) for name in OTHERS),
    *(pytest.param((name, PHONE), marks=pytest.mark.slow) for name in (FIRST, *OTHERS)),
]

INSIDE = ("data:", "blob:")

# The panes of a figure that can be seen; what is drawn of each; what is wrong with the drawing.
SCRIPT = """
const SHAPES = ".scatterlayer .trace path, .heatmaplayer image, .contourlayer path";
window.visible = (figure) => [...figure.querySelectorAll(".pane")].filter((p) => p.offsetWidth > 0);
const filled = (values) => Array.isArray(values)
  ? values.some((value) => value !== null)
  : values?.bdata?.length > 0; // Plotly's binary form
window.title = (pane) => pane.querySelector("h3").textContent;
window.seen = (figure) => visible(figure).map((pane) => pane.dataset.at + title(pane));
window.undrawn = (figure) => visible(figure).flatMap((pane) => {
  const name = `${figure.id}: ${title(pane)}`;
  const plot = pane.querySelector(".plot");
  const images = [...pane.querySelectorAll("img")];
  const paths = [...pane.querySelectorAll(".panel path")];
  if (plot) {
    const shapes = plot.querySelectorAll(SHAPES);
    const known = (plot.data ?? []).every((trace) => filled(trace.z) || filled(trace.y));
    return plot.data?.length && known && shapes.length >= plot.data.length ? [] : [name];
  }
  const bad = images.some((i) => !(i.complete && i.naturalWidth > 0 && i.offsetWidth > 0))
    || paths.some((p) => !p.getAttribute("d"));
  return images.length + paths.length > 0 && !bad ? [] : [name];
});
"""


@contextmanager
def opened(browser: Browser, file: Path, width: int = DESKTOP, **settings: Any) -> Iterator[Page]:
    """The page; whatever is done with it, it must neither complain nor ask for another file."""
    small = width < 600
    context = browser.new_context(
        viewport={"width": width, "height": 900}, is_mobile=small, has_touch=small, **settings
    )
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.add_init_script(SCRIPT)
    page.goto(file.as_uri())
    yield page
    context.close()
    assert complaints == []
    assert [u for u in requests if u != file.as_uri() and not u.startswith(INSIDE)] == []


def unfold(page: Page) -> None:
    """Open every section, and wait until its charts are drawn."""
    page.evaluate("document.querySelectorAll('.fold').forEach((fold) => { fold.open = true; })")
    page.wait_for_function(
        """[...document.querySelectorAll(".plot")]
          .filter((plot) => plot.offsetWidth > 0).every((plot) => plot.data)"""
    )


def seen(page: Page, figure: str, kind: str = "seen") -> list[str]:
    """What a figure shows at present; or what of it is `undrawn`."""
    return page.evaluate(f"(id) => {kind}(document.getElementById(id))", figure)


def figures(page: Page) -> list[str]:
    return page.evaluate("[...document.querySelectorAll('figure')].map((f) => f.id)")


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of an experiment as a file, or the index."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def made(name: str) -> Path:
        html = index(ROOT) if name == "index" else render(document_of(read_folder(name, ROOT)))
        file = folder / f"{name}.html"
        file.write_text(html, "utf-8")
        assert file.stat().st_size < LIMIT
        return file

    return made


@pytest.fixture(scope="module", params=SHOWN, ids=lambda p: f"{p[0]}-{p[1]}")
def place(request: pytest.FixtureRequest) -> tuple[str, int]:
    return request.param


@pytest.fixture(scope="module")
def page(
    browser: Browser, page_of: Callable[[str], Path], place: tuple[str, int]
) -> Iterator[Page]:
    """Open for all tests: they leave it as they find it."""
    with opened(browser, page_of(place[0]), place[1]) as shown:
        unfold(shown)
        yield shown


CHOOSE = """(input) => {
  input.checked = true;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def test_every_figure_is_drawn_with_data_at_every_choice(page: Page) -> None:
    assert {"sheet", "frontier", "training-curves"} <= {*figures(page)}
    for figure in figures(page):
        inputs = page.locator(f"#{figure} .controls input").all()
        shown = {*seen(page, figure)}
        assert shown and seen(page, figure, "undrawn") == []
        for choice in [*inputs, *inputs[:1]]:
            choice.evaluate(CHOOSE)
            assert seen(page, figure, "undrawn") == []
            shown |= {*seen(page, figure)}
        everything = page.locator(f"#{figure} .pane").count()
        assert len(shown) == everything, f"{figure}: {everything - len(shown)} panes never show"


def test_radio_buttons_follow_the_keyboard_and_the_mouse(page: Page) -> None:
    for group in page.locator("fieldset").all():
        figure = group.evaluate("(element) => element.closest('figure').id")
        first, second = group.locator("input").all()[:2]
        before = seen(page, figure)
        first.focus()
        page.keyboard.press("ArrowRight")
        assert second.is_checked() and not first.is_checked()
        assert seen(page, figure) != before
        group.locator("label").first.click()
        assert first.is_checked() and seen(page, figure) == before


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
        button.click()
        assert button.get_attribute("aria-pressed") == "false"
        page.mouse.move(0, 0)  # pointing at it brings it out, too
        assert button.evaluate(OPACITIES) == before


def test_the_keyboard_alone_reaches_everything(page: Page) -> None:
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


# Of every chart: words that stand on one another, and words that leave the chart.
CLASHES = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
  if (plot.offsetWidth === 0) return [];
  const frame = plot.getBoundingClientRect();
  const words = [...plot.querySelectorAll(
    ".xtick text, .ytick text, .annotation-text-g text, .xtitle, .ytitle")]
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


def test_nothing_is_wider_than_the_screen_and_no_label_stands_on_another(page: Page) -> None:
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
    assert page.evaluate(CLASHES) == []
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, td, th, figcaption, dd, label, button, svg text')]"
        ".filter((e) => e.checkVisibility()).map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 10
    boxes = page.evaluate(
        """() => [...document.querySelectorAll(".scroll")].filter((e) => e.checkVisibility())
          .map((e) => [
            e.scrollWidth > e.clientWidth + 1, getComputedStyle(e, "::after").content])"""
    )
    assert boxes
    for is_cut, sign in boxes:  # what is cut off at the side says so
        assert ("more to the right" in sign) == is_cut


def test_a_page_can_be_read_aloud(page: Page) -> None:
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len({*ids})
    untold = page.evaluate(
        """() => [...document.querySelectorAll("figure")].filter((figure) => {
          const drawn = [...figure.querySelectorAll("[role=img]")];
          const images = [...figure.querySelectorAll("img")];
          return !(figure.querySelector("figcaption").textContent.trim()
            && drawn.length + images.length > 0
            && drawn.every((e) => e.getAttribute("aria-label"))
            && images.every((i) => i.alt && i.getAttribute("width") && i.getAttribute("height")));
        }).map((figure) => figure.id)"""
    )
    assert untold == []


def test_the_data_of_every_figure_can_be_saved(page: Page) -> None:
    for figure in figures(page):
        details = page.locator(f"#{figure} details")
        link = details.locator(".download a").get_attribute("href") or ""
        header, *rows = csv.reader(unquote(link.partition(",")[2]).splitlines())
        assert header == details.locator("thead th").all_text_contents()
        assert len(rows) == details.locator("tbody tr").count() > 0


def test_the_first_screen_holds_samples_frontier_and_table(
    browser: Browser, page_of: Callable[[str], Path], place: tuple[str, int]
) -> None:
    with opened(browser, page_of(place[0]), place[1]) as page:
        parts = ("#sheet", "#frontier", "#headline", "nav", ".fold")
        boxes = [page.locator(part).first.bounding_box() for part in parts]
        tops = [box["y"] for box in boxes if box]
        assert len(tops) == len(parts) and tops == sorted(tops)
        assert page.evaluate("document.documentElement.scrollWidth") == place[1]
        if place[1] == DESKTOP:
            box = page.locator("#headline .ticks").bounding_box()
            assert box and box["y"] < SCREEN
            assert page.evaluate("document.documentElement.scrollHeight") <= HIGHEST
            assert page.locator("details[open]").count() == 0


def test_buttons_copy_and_labels_are_links(
    browser: Browser, page_of: Callable[[str], Path]
) -> None:
    given = tables(document_of(read_folder(FIRST, ROOT)))
    with opened(browser, page_of(FIRST), permissions=["clipboard-read", "clipboard-write"]) as page:
        unfold(page)
        for name in ("headline", "frechet_by_nfe"):
            table = given[name]
            assert isinstance(table, document.ResultTable)
            results = page.locator(".results", has=page.locator(f"#table-{name}"))
            for format, text in table.copies.items():
                results.locator(f'[data-format="{format}"]').click()
                results.get_by_text("Copied").wait_for()
                assert page.evaluate("navigator.clipboard.readText()") == text
                page.wait_for_timeout(1600)
        page.locator("#headline tbody a", has_text="beta_tilde").first.click()
        entry = page.locator("#about-beta-tilde")
        entry.wait_for()
        assert "Σ = β̃" in entry.inner_text()


def test_colour_schemes_and_paper(browser: Browser, page_of: Callable[[str], Path]) -> None:
    with opened(browser, page_of(FIRST), color_scheme="dark") as page:
        unfold(page)
        assert_coloured(page, "dark")
        assert page.pdf().startswith(b"%PDF")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # charts are drawn on the screen
        page.emulate_media(media="print")
        assert_coloured(page, "light")
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert_coloured(page, "dark")


def assert_coloured(page: Page, scheme: str) -> None:
    """The page, and every line and every word of the charts that can be seen, before long."""
    palette = PALETTES[scheme]
    page.wait_for_function(
        """(known) => [...document.querySelectorAll(".plot")]
          .filter((plot) => plot.offsetWidth > 0)
          .flatMap((plot) => [plot.layout.font.color, ...plot.data.map((t) => t.line?.color)])
          .every((colour) => !colour || known.includes(colour))""",
        arg=list(palette.values()),
    )
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.body).color")
    for shown, name in ((ground, "page"), (ink, "ink")):
        assert [int(x) for x in re.findall(r"\d+", shown)] == [*bytes.fromhex(palette[name][1:])]


@pytest.mark.parametrize("width", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.slow)])
def test_the_index_fits(browser: Browser, page_of: Callable[[str], Path], width: int) -> None:
    with opened(browser, page_of("index"), width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator(".card").count() >= 9
        assert page.locator("#digits .thumbnails img").first.evaluate("(i) => i.naturalWidth") > 0
        assert page.locator("#toy_mog9 .thumbnails path").count() == 3


ATTACK = (
    "'\"></script><script>window.pwned = 1</script>"
    "<img src=x onerror='window.pwned = 2'><b id=injected>&lt;{{ 7 * 7 }}"
)
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


def test_text_stays_text_wherever_a_page_can_have_it(browser: Browser, tmp_path: Path) -> None:
    table = document.DataTable(ATTACK, (ATTACK,), ((ATTACK,),))
    trace = {"x": [1, 2], "y": [3, 4], "name": ATTACK, "meta": ATTACK, "text": [ATTACK] * 2}
    axis = {"title": {"text": ATTACK}}
    spec = {"data": [trace | {"mode": "lines+text"}], "layout": {"xaxis": axis}}
    rows = ((ATTACK, (document.Picture(ATTACK, PIXEL, 1, 1),)),)
    ats = ({ATTACK: ATTACK}, {ATTACK: "other"})
    matrices = (document.PictureMatrix(ATTACK, (ATTACK,), rows, at) for at in ats)
    panes = (document.Plot(ATTACK, spec), *matrices)
    legend = {ATTACK: LineStyle("Learned", "blue", "circle")}
    figure = document.Figure("figure", ATTACK, ATTACK, panes, table, legend, control=ATTACK)
    blocks = (ATTACK, figure, table, document.Provenance({}, {}, ATTACK, {}))
    section = document.Section("s", ATTACK, blocks)
    file = tmp_path / "page.html"
    file.write_text(render(document.Page(ATTACK, ATTACK, (section,), (ATTACK,))))
    with opened(browser, file) as page:
        page.locator(".legend button").click()
        page.locator("fieldset label").last.click()
        page.locator(".plot .points, .plot .scatterlayer").first.hover(force=True)
        assert page.evaluate("window.pwned") is None
        assert page.locator("#injected").count() == 0
        assert page.locator("img").count() == 2
        assert page.locator("h1").text_content() == ATTACK
        assert page.locator("dd").first.text_content() == ATTACK
