"""The pictures of README.md, from the pages in a browser: `make pictures`.

docs/pictures/reports.png is the index of all experiments, digits.png the first screen of a page.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from ocm_core.errors import OcmError
from ocm_core.report.page import site

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/pictures"
PICTURES = {"reports.png": "index", "digits.png": "digits"}  # of which page
WIDTH, HEIGHT = 1400, 1000
SHOWN = 1000  # pixels across, in the README
COLOURS = 256
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_DRAWN = """() => [...document.querySelectorAll(".plot")]
  .filter((plot) => plot.getBoundingClientRect().top < innerHeight && plot.offsetWidth > 0)
  .every((plot) => plot.querySelector(".main-svg"))"""


def write(folder: Path, files: Mapping[str, str], browser: Browser) -> list[Path]:
    """Every picture; `files` are those of the site."""
    for picture, page in PICTURES.items():
        if f"reports/{page}.html" not in files:
            raise OcmError(f"reports/{page}/: missing, and {picture} is made of it")
    with TemporaryDirectory() as scratch:
        for address, text in files.items():
            file = Path(scratch, address)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        pages = {name: Path(scratch, f"reports/{page}.html") for name, page in PICTURES.items()}
        return [_write(folder / name, page, browser) for name, page in pages.items()]


def _write(picture: Path, page: Path, browser: Browser) -> Path:
    shown = browser.new_page(
        viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", reduced_motion="reduce"
    )
    shown.goto(page.as_uri())
    shown.wait_for_function(_DRAWN)
    image = Image.open(BytesIO(shown.screenshot())).convert("RGB")
    shown.close()
    reduced(image).save(picture, optimize=True)
    return picture


def reduced(screen: Image.Image) -> Image.Image:
    """A palette by octree: one by median cut spends its colours on greys, and lines lose theirs."""
    small = screen.resize((SHOWN, HEIGHT * SHOWN // WIDTH), Image.Resampling.LANCZOS)
    return small.quantize(COLOURS, Image.Quantize.FASTOCTREE)


def main() -> None:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise OcmError(f"no browser: none of {', '.join(PROGRAMS)} is installed")
    files = site(ROOT, home="")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program)
        for picture in write(FOLDER, files, browser):
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    try:
        main()
    except OcmError as error:
        sys.exit(f"make pictures: {error}")
