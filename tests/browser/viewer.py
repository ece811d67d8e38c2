"""A page as a reader has it on the screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

PHONE, DESKTOP = 390, 1400
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


def seen(page: Page, figure: str) -> list[str]:
    """What a figure shows at present."""
    return page.evaluate("(id) => seen(document.getElementById(id))", figure)


def figures(page: Page) -> list[str]:
    return page.evaluate("[...document.querySelectorAll('figure')].map((f) => f.id)")
