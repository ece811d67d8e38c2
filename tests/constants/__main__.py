"""Apply each change to a copy, run its tests, and say which change no test notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.constants.changes import CHANGES, Change

ROOT = Path(__file__).parents[2]
COPIED = ("ocm_core", "tests", "params", "docs", "reports", "README.md", "pyproject.toml")


def main(wanted: str = "") -> int:
    chosen = [change for change in CHANGES if wanted in change.file]
    with TemporaryDirectory() as folder:
        copy = _copied(Path(folder))
        unnoticed = [change for change in chosen if not _said(change, _noticed(copy, change))]
    return 1 if unnoticed else 0


def _copied(root: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    return root


def _noticed(root: Path, change: Change) -> bool:
    file = root / "ocm_core" / change.file
    text = file.read_text()
    if text.count(change.before) != 1:
        raise SystemExit(f"{change.file}: {change.before!r} is there {text.count(change.before)}×")
    file.write_text(text.replace(change.before, change.after))
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", *change.tests.split(" ", 2)]
        done = subprocess.run(command, cwd=root, capture_output=True, env=_environment(root))
    finally:
        file.write_text(text)
    if done.returncode not in (0, 1):  # 5: no tests; others: pytest itself
        raise SystemExit(f"{' '.join(command)}\n{done.stdout.decode()}")
    return done.returncode == 1


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}


def _said(change: Change, noticed: bool) -> bool:
    state = "noticed" if noticed else "NOT NOTICED"
    print(f"{state}: {change.file}: {change.before} → {change.after} ({change.tests})", flush=True)
    return noticed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
