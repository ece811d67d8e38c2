"""A kept page is the page without Plotly's bundle, small, the same bytes each time, and checked."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from base64 import b64decode, b64encode
from io import BytesIO
from math import inf
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from plotly.offline import get_plotlyjs

from ocm_core.errors import OcmError
from ocm_core.overview import kept
from ocm_core.overview.kept import (
    BUNDLE,
    LIMIT,
    SUFFIX,
    KeptPage,
    bundle,
    is_current,
    keep,
    kept_file,
    kept_names,
    numbers_digest,
    pack,
    read_kept,
)
from ocm_core.overview.page import entries, render
from ocm_core.overview.thumbnails import SIDE, thumbnails
from ocm_core.pipeline.table import Task
from ocm_core.pipeline.working import WorkingFolder
from ocm_core.report.page.render import render as render_page
from tests.pipeline.writer import WaitingWriter
from tests.report.synthetic_images import BOTH, images
from tests.report.synthetic_toy import toy

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def digits() -> str:
    from ocm_core.report.image_page import page

    return render_page(page(images(BOTH)))


@pytest.fixture
def tree(tmp_path: Path, digits: str) -> Path:
    """Parameters and numbers as committed, and a page of synthetic ones."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "params").symlink_to(ROOT / "params")
    (tmp_path / "ocm_core").symlink_to(ROOT / "ocm_core")
    metrics = "digits.metrics.json"
    (tmp_path / "reports" / metrics).write_text((ROOT / "reports" / metrics).read_text())
    kept = pack(digits, numbers_digest(tmp_path, "digits"), "digits")
    (tmp_path / kept_file("digits")).write_bytes(kept)
    return tmp_path


def test_nothing_but_the_bundle_is_missing_and_it_fits_into_git(tree: Path, digits: str) -> None:
    kept = read_kept(tree, "digits")
    assert (tree / kept_file("digits")).stat().st_size < LIMIT
    whole = re.sub(rf'<script src="{BUNDLE}"[^>]*></script>', "<script>@</script>", kept.html)
    assert whole.rpartition("<!-- numbers")[0] == digits.replace(get_plotlyjs(), "@")
    assert bundle({"digits": kept}) == get_plotlyjs()
    assert kept_names(tree) == ["digits"]


def test_the_page_of_all_committed_numbers_is_kept() -> None:
    """Of those that say what made them; `ocm keep NAME` keeps one, after a run."""
    asked = ["git", "ls-files", "reports/*.provenance.json"]
    tracked = subprocess.run(asked, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = [Path(file).name.removesuffix(".provenance.json") for file in tracked.split()]
    assert names and not {*names} - {*kept_names(ROOT)}


def test_equal_pages_are_kept_as_equal_bytes(tree: Path, digits: str) -> None:
    again = pack(digits, numbers_digest(tree, "digits"), "digits")
    assert again == (tree / kept_file("digits")).read_bytes()


def test_a_card_shows_the_samples_of_a_page_of_its_numbers_and_of_no_other(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    (card,) = entries(tree, pages=["digits"])
    assert card.pictures and card.page == "digits.html"
    assert render([card]).count("data:image/webp") == len(card.pictures)
    metrics = tree / "reports/digits.metrics.json"
    metrics.write_text(metrics.read_text().replace("5.", "6.", 1))
    assert not is_current(tree, "digits", read_kept(tree, "digits"))
    assert entries(tree)[0].pictures == ()


@pytest.mark.parametrize("kind", ["png", "webp"])
def test_thumbnails_are_the_first_pictures_made_small(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (500, 300, 3), np.uint8)
    written = BytesIO()
    Image.fromarray(noise).save(written, kind)
    uri = f"data:image/{kind};base64," + b64encode(written.getvalue()).decode()
    page = KeptPage(f'<img src="other.png">{f"<img src={uri}>" * 5}', "")
    found = thumbnails(page, Path("x"))
    assert len(found) == 3
    small = Image.open(BytesIO(b64decode(found[0].uri.partition(",")[2])))
    assert small.size == (SIDE * 300 // 500, SIDE)


def test_samples_by_ocm_come_first() -> None:
    drawn = "".join(
        f'<svg viewBox="0 0 9 9" role="img" aria-label="For ocm. Here: {name}.">'
        f'<path d="M{i}"/></svg>'
        for i, name in enumerate(("test set", "beta", "ocm, K = 5", "ocm_3", "ocm_relative, K = 5"))
    )
    found = thumbnails(KeptPage(drawn, ""), Path("x"))
    assert [one.path for one in found] == ["M2", "M4", "M0"]


def test_points_of_a_toy_are_pictures_too() -> None:
    from ocm_core.report.toy_page import page

    html = read_back(render_page(page(toy())))
    found = thumbnails(html, Path("x"))
    assert len(found) == 3 and all(one.path.startswith("M") and one.box for one in found)


def read_back(page: str) -> KeptPage:
    return KeptPage(gzip.decompress(pack(page, "0" * 64, "toy")).decode(), "0" * 64)


def test_a_page_that_is_too_large_is_refused_by_name() -> None:
    noise = os.urandom(LIMIT).hex()
    with pytest.raises(OcmError, match=r"reports/big.html: \d+ bytes .* at most 2000000"):
        pack(noise, "", "big")


# Without a time of compression: pytest names the case by its bytes, and every process has to agree.
@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"<html>no digest", mtime=0)])
def test_a_damaged_file_is_named(tree: Path, content: bytes) -> None:
    (tree / kept_file("digits")).write_bytes(content)
    with pytest.raises(OcmError, match=rf"digits{re.escape(SUFFIX)}: expected a page that"):
        read_kept(tree, "digits")


def test_a_page_of_another_plotly_is_refused(tree: Path) -> None:
    page = read_kept(tree, "digits")
    old = KeptPage(re.sub(r'data-major="\d+"', 'data-major="1"', page.html), page.numbers)
    with pytest.raises(OcmError, match=r"digits.page.html.gz: drawn by plotly.js 1, and \d+ is"):
        bundle({"digits": old})


@pytest.mark.parametrize("name", kept_names(ROOT))
def test_every_page_in_git_shows_the_numbers_in_git(name: str) -> None:
    assert is_current(ROOT, name, read_kept(ROOT, name)), f"run `ocm keep {name}`, and commit it"
    assert (ROOT / kept_file(name)).stat().st_size <= LIMIT


def test_page_and_numbers_are_of_one_run_even_if_another_waits_to_exchange_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = ("reports/some.html", "reports/some.metrics.json")
    work = WorkingFolder("some", Task("report", "all"), {}, outputs)
    assert work.prepare(inf)
    for file in work.staged.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    work.finish({})
    writer = WaitingWriter(work.place)
    writer.comes_at(monkeypatch, kept, "numbers_digest")
    keep("some")
    assert writer.ends() == ["numbers_digest", "exchanged"]
