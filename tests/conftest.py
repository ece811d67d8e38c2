"""Shared settings: no timed tests, one thread per test process, long ones first, one browser."""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

from ocm_core.schema.experiment import SpectrumParams

TESTS = Path(__file__).parent
LONG = ("cluster", "browser", "init", "pipeline", "chaos", "docs")  # files of minutes
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")

settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What comes last should be short: a long file would keep one worker while the others wait."""

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parts[0]
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=place)


@pytest.fixture
def few_residuals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the API estimate spectra from a dozen images at a few timesteps."""
    few = partial(SpectrumParams, images=12, points=6)
    monkeypatch.setattr("ocm_core.api.SpectrumParams", few)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests of a process: Playwright starts but once in it."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)} is installed; see `make browser`")
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=program)
        yield launched
        launched.close()
