from pathlib import Path

import pytest

from ocm_core.io.fetch import Lock


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def lock(tmp_path: Path) -> Lock:
    return Lock(tmp_path / "checkpoints.lock.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "some"
