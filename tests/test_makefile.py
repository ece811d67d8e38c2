"""The interpreter that `make` asks for, and the lock files that it installs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN, DEV = "requirements.txt", "requirements-dev.txt"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Nothing but what `make env` looks at, and no Python on the PATH but ours."""
    for name in ("Makefile", RUN, DEV, "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("make", "sh", "test"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    return tmp_path


def program(checkout: Path, name: str, script: str) -> None:
    file = checkout / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def make_fails(checkout: Path, target: str) -> str:
    env = {**os.environ, "PATH": str(checkout / "bin")}
    done = subprocess.run(["make", target], cwd=checkout, env=env, capture_output=True, text=True)
    assert done.returncode
    return done.stderr


@pytest.mark.parametrize("version", [None, "3.9.2", "2.7.18 >&2", "3.110.0"])
def test_a_python_that_will_not_do_is_named(checkout: Path, version: str | None) -> None:
    found, instead = "no such command", "python3.12"
    if version:
        found, instead = f"Python {version.split()[0]}", "python3.11"
        program(checkout, "bin/python3", f"echo Python {version}")
        program(checkout, "bin/python3.11", "echo Python 3.11.7")
    said = make_fails(checkout, "report")
    assert f"make env: python3: {found}; Python 3.11 to 3.13 is needed" in said
    assert f"make PYTHON={instead} report" in said


def test_an_environment_in_which_diffusers_does_not_import_is_refused(checkout: Path) -> None:
    program(checkout, ".venv/bin/python", '[ "$1" != -c ]')
    program(checkout, ".venv/bin/uv", "exit 0")
    assert "diffusers does not import; remove .venv" in make_fails(checkout, "report")


def test_what_is_installed_is_locked() -> None:
    """But for torch, which has a build of each version for each kind of machine."""
    texts = {name: (ROOT / name).read_text() for name in (RUN, DEV)}
    run, dev = (dict(re.findall(r"^([\w.-]+)(==.*)", text, re.M)) for text in texts.values())
    assert {"diffusers", "dvc", "snakemake", "pooch", "transformers"} <= run.keys()
    assert {"mkdocs", "playwright", "pytest", "mypy", "ruff"} <= dev.keys()
    assert not run.keys() & dev.keys() and texts[DEV].startswith("-r requirements.txt\n")
    locked = run | dev
    assert [name for name, line in locked.items() if "--hash=sha256:" not in line] == ["torch"]
    assert not [line for line in locked.values() if re.search(r"://|/[a-z]", line)]
    assert "+" not in locked["torch"] and "torchvision" not in locked
