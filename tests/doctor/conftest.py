"""Fixtures of the doctor's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.doctor import pace

from .stages import fake_stages

__all__ = ["fake_stages", "kept_in_folder"]


@pytest.fixture(autouse=True)
def kept_in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep counts and measurements in a folder of the test, on a machine without a GPU."""
    monkeypatch.setattr(pace, "FILE", tmp_path / "pace.json")
    monkeypatch.setattr(pace, "this_device", lambda: "cpu")
    monkeypatch.setattr("ocm_core.doctor.times.this_device", lambda: "cpu")
    return tmp_path / "pace.json"
