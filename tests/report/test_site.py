"""`make site` in a copy of the repository, opened from the file system in a real browser."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image
from playwright.sync_api import Browser

from ocm_core.errors import OcmError
from ocm_core.report.page import site as site_files
from tests.report.made_up import ROOT, image_folder

COPIED = ("docs", "workflow/site", "examples", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FILES = ("CITATION.cff", "LICENSE", "mkdocs.yml")


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"workflow/site/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("site") / "project"
    for name in (*COPIED, *FILES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    for name in ("ocm_core", "params", "reports"):
        (root / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return root / "site"


@pytest.mark.slow
def test_every_link_leads_somewhere_within_the_site(site: Path, browser: Browser) -> None:
    assert script("links").problems(site) == []
    pages = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    assert {"index.html", "tour.html", "mathematics.html", "reports/digits.html"} <= {*pages}
    assert "```" not in (site / "results.html").read_text()
    shown = browser.new_page(viewport={"width": 1400, "height": 900})
    shown.goto((site / "reports/index.html").as_uri())
    shown.locator("#digits a").first.click()
    shown.wait_for_selector(".plot .main-svg")  # with the bundle that pages share
    shown.goto((site / "results.html").as_uri())
    assert shown.locator("table").count() > 40
    shown.close()


def test_every_page_stands_once_in_the_menu() -> None:
    pages = re.findall(r"^ +- .+: (\S+\.(?:md|html))$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert len(pages) > 15 and sorted({*pages}) == sorted(pages)


def test_tables_of_documents_are_filled_in() -> None:
    tables = script("tables")
    block = "```results\n{}\n```"
    found = tables.filled(block.format("digits frechet: ddpm.ocm unipc.none at nfe 5 10"), ROOT)
    assert found.splitlines()[0] == "| Fréchet distance | nfe 5 | nfe 10 |"
    assert found.splitlines()[2] == "| `ddpm.ocm` | 26.95 | 10.95 |"
    guided = tables.filled(block.format("mnist_latent recall ddim: delta at nfe 10@1.5"), ROOT)
    assert "| recall, ddim | nfe 10, guidance 1.5 |" in guided
    for line, says in {
        "digits frechet ddpm: ocm at nfe 6": "has ocm at 6, and the results not",
        "digits frechet": "cannot read the table",
        "digit frechet ddpm: ocm at nfe 5": "has no results.csv",
    }.items():
        with pytest.raises(OcmError, match=says):
            tables.filled(block.format(line), ROOT)
    text = (ROOT / "docs/results.md").read_text()
    assert text.count("```results") > 40 and "```results" not in tables.filled(text, ROOT)


@pytest.mark.slow
def test_the_pictures_of_the_readme_are_made(browser: Browser, tmp_path: Path) -> None:
    image_folder(tmp_path / "reports/digits")
    pictures, files = script("pictures"), site_files(tmp_path, home="")
    shown = (ROOT / "README.md").read_text() + (ROOT / "docs/running.md").read_text()
    for file in pictures.write(tmp_path / "pictures", files, browser):
        assert f"pictures/{file.name})" in shown
        assert Image.open(file).size == (1000, 714)
        assert file.stat().st_size < 300_000
    del files["reports/digits.html"]
    with pytest.raises(OcmError, match=r"reports/digits/: missing, and digits.png is made of it"):
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
