"""A copy of the parameters that a test can edit."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `params/`, inside of the current folder."""
    shutil.copytree(ROOT / "params", tmp_path / "params")
    (tmp_path / "ocm_core").symlink_to(ROOT / "ocm_core")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "params"
