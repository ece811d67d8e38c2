"""`make site` in a copy of the repository, opened from the file system in a real browser."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image, ImageColor
from playwright.sync_api import Browser, Page

from ocm_core.errors import OcmError
from ocm_core.overview.gallery import gallery
from ocm_core.overview.kept import kept_file, numbers_digest, pack
from ocm_core.report.image_page import page as image_page
from ocm_core.report.page.render import render
from ocm_core.report.page.style import HUES, LIGHT
from tests.report.synthetic_images import BOTH, images

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("docs", "workflow/site", "examples", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FILES = ("CITATION.cff", "LICENSE", "mkdocs.yml")
NUMBERS = ("digits", "mnist_latent", "toy_mog9")
WIDTHS = (1400, 390)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents, some committed numbers, and the page of made-up ones as a kept page."""
    root = tmp_path_factory.mktemp("site") / "project"
    for name in (*COPIED, *FILES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    for name in ("ocm_core", "params"):
        (root / name).symlink_to(ROOT / name)
    (root / "reports").mkdir()
    for name in NUMBERS:
        shutil.copy(ROOT / f"reports/{name}.metrics.json", root / "reports")
    kept = pack(render(image_page(images(BOTH))), numbers_digest(root, "digits"), "digits")
    (root / kept_file("digits")).write_bytes(kept)
    return root


@pytest.fixture(scope="module")
def site(checkout: Path) -> Path:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return checkout / "site"


@contextmanager
def shown(browser: Browser, file: Path, width: int = 1400) -> Iterator[Page]:
    """Whatever is done with it, it must neither complain nor ask for anything beyond the site."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    yield page
    page.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"workflow/site/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site: Path) -> None:
    assert script("links").problems(site) == []
    pages = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    assert {"index.html", "tour.html", "mathematics.html", "reports/digits.html"} <= {*pages}
    assert "The denoiser with a trained head" in (site / "api/api.html").read_text()
    assert len([name for name in pages if name.startswith("api/")]) > 20


def test_every_page_stands_once_in_the_menu() -> None:
    pages = re.findall(r"^ +- .+: (\S+\.(?:md|html))$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(pages) > 15 and sorted({*pages}) == sorted(pages)


def test_the_documents_can_be_read_and_searched_from_the_file_system(
    browser: Browser, site: Path
) -> None:
    with shown(browser, site / "index.html") as page:
        assert page.locator("h1").inner_text().startswith("ocm-core")
        page.locator("[data-md-component=search-query]").first.click()
        page.keyboard.type("Tweedie")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert "mathematics.html" in (found.get_attribute("href") or "")


def test_a_kept_report_is_drawn_with_the_shared_bundle(browser: Browser, site: Path) -> None:
    with shown(browser, site / "reports/index.html") as page:
        page.locator("#digits a").first.click()
        page.wait_for_selector(".plot .main-svg")
        assert page.locator("figure").count() > 3
        assert page.url.endswith("reports/digits.html")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_index_fits_the_screen(browser: Browser, site: Path, width: int) -> None:
    with shown(browser, site / "reports/index.html", width) as page:
        page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cut = page.evaluate(
            """[...document.querySelectorAll(".card, .card *")]
              .filter((e) => e instanceof HTMLElement && e.clientWidth > 0)
              .filter((e) => e.scrollWidth > e.clientWidth + 1)
              .map((e) => `${e.closest(".card").id} ${e.tagName}`)"""
        )
        assert cut == []
        assert page.locator("#digits .thumbnails img").first.evaluate("(i) => i.naturalWidth") > 0
        assert page.locator(".card .sketch.sketch path.ours").count() >= len(NUMBERS)


def hues(image: Image.Image) -> set[str]:
    """Those of the palette that some pixels have, nearly."""
    pixels = np.asarray(image.convert("RGB"), dtype=int).reshape(-1, 3)
    return {
        name
        for name in HUES
        if (abs(pixels - ImageColor.getrgb(LIGHT[name])).max(axis=1) <= 20).sum() > 20
    }


def test_a_line_keeps_its_hue_among_many_shades() -> None:
    """Of samples, of text and of its edges, which take most of a screen."""
    pictures = script("pictures")
    shades = np.random.default_rng(0).integers(0, 256, (pictures.HEIGHT, pictures.WIDTH))
    screen = Image.fromarray(shades.astype(np.uint8)).convert("RGB")
    for place, name in enumerate(HUES):
        screen.paste(LIGHT[name], (0, 100 * place, 100, 100 * place + 6))
    assert hues(pictures.reduced(screen)) == {*HUES}


def test_the_pictures_of_the_readme_are_made_by_the_command(
    browser: Browser, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    pictures, files = script("pictures"), gallery(checkout, home="")
    made = pictures.write(tmp_path, files, browser)
    readme = (ROOT / "README.md").read_text()
    assert {"vermillion", "blue", "green"} <= hues(Image.open(tmp_path / "digits.png"))
    for file in made:
        assert f"(docs/pictures/{file.name})" in readme
        assert Image.open(file).size == (1000, 714)
        assert len(Image.open(file).convert("RGB").getcolors(1 << 24) or ()) > 20
        assert file.stat().st_size < 300_000
    del files["reports/digits.html"]
    with pytest.raises(OcmError, match=r"digits.page.html.gz: missing, and digits.png is made"):
        pictures.write(tmp_path, files, browser)


def test_the_checker_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="#x">.</a><a href="b.html#y">.</a><a href="c.html">.</a>'
        '<a href="https://example.org">.</a><script src="https://example.org/s.js"></script>'
    )
    (tmp_path / "b.html").write_text("<img src='p.png'>")
    assert script("links").problems(tmp_path) == [
        "a.html: loads https://example.org/s.js",
        "a.html: no such place: b.html#y",
        "a.html: no such place: c.html",
        "b.html: no such place: p.png",
    ]
