"""Pages of the committed folders, rendered once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ocm_core.report.folder import read_folder
from ocm_core.report.index import index
from ocm_core.report.page import page
from ocm_core.report.render import render

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of an experiment as a file, or the index."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def made(name: str) -> Path:
        html = index(ROOT) if name == "index" else render(page(read_folder(name, ROOT)))
        file = folder / f"{name}.html"
        file.write_text(html, "utf-8")
        return file

    return made
