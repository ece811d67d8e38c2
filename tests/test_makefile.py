"""`make` names the interpreter that it was given, what that is, and one that will do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Nothing but what `make env` looks at, and no Python on the PATH but ours."""
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("make", "sh", "test"):
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def interpreter(checkout: Path, name: str, version: str, stream: int = 1) -> None:
    file = checkout / "bin" / name
    file.write_text(f"#!/bin/sh\necho Python {version} >&{stream}\n")
    file.chmod(0o755)


def make(checkout: Path, *arguments: str) -> str:
    env = {**os.environ, "PATH": str(checkout / "bin")}
    done = subprocess.run(
        ["make", *arguments], cwd=checkout, env=env, capture_output=True, text=True
    )
    assert done.returncode
    return done.stderr


def test_there_is_none(checkout: Path) -> None:
    said = make(checkout, "report")
    assert "make env: python3: no such command; Python 3.11 to 3.13 is needed" in said
    assert "make PYTHON=python3.12 report" in said


@pytest.mark.parametrize(("version", "stream"), [("3.9.2", 1), ("2.7.18", 2), ("3.110.0", 1)])
def test_another_version_is_named_and_one_that_is_there(
    checkout: Path, version: str, stream: int
) -> None:
    interpreter(checkout, "python3", version, stream)
    interpreter(checkout, "python3.11", "3.11.7")
    said = make(checkout, "env")
    assert f"make env: python3: Python {version}; Python 3.11 to 3.13 is needed" in said
    assert "make PYTHON=python3.11 env" in said
