"""The interpreter that `make` asks for, and the lock files that it installs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Nothing but what `make env` looks at, and no Python on the PATH but ours."""
    for name in ("Makefile", "requirements.txt", "requirements-dev.txt", "pyproject.toml"):
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


def test_an_environment_in_which_diffusers_does_not_import_is_refused(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    for name, script in (("python", '[ "$1" != -c ]'), ("uv", "exit 0")):
        file = checkout / ".venv" / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    assert "diffusers does not import; remove .venv" in make(checkout, "report")


RUN, DEV = "requirements.txt", "requirements-dev.txt"


def pins(name: str) -> dict[str, str]:
    """The rest of each line by package."""
    lines = (ROOT / name).read_text().splitlines()
    return {line.partition("==")[0]: line for line in lines if "==" in line}


def test_every_pin_but_torch_has_hashes() -> None:
    """torch has a build of each version for each kind of machine."""
    locked = pins(RUN) | pins(DEV)
    assert [name for name, line in locked.items() if "--hash=sha256:" not in line] == ["torch"]
    assert not [line for line in locked.values() if re.search(r"://|/[a-z]", line)]
    assert locked["torch"].partition("+")[1] == ""


def test_running_installs_no_tools_of_development() -> None:
    assert {"diffusers", "dvc", "snakemake", "pooch", "transformers"} <= pins(RUN).keys()
    assert {"mkdocs", "playwright", "pytest", "mypy", "ruff"} <= pins(DEV).keys()
    assert not pins(RUN).keys() & pins(DEV).keys()
    assert (ROOT / DEV).read_text().startswith("-r requirements.txt\n")


def test_diffusers_imports_without_torchvision() -> None:
    """diffusers imports without it, and fails with a build that does not fit torch."""
    assert "torchvision" not in pins(RUN) | pins(DEV)
    done = subprocess.run([sys.executable, "-c", "from diffusers import UNet2DModel"])
    assert done.returncode == 0
