"""Apply each change to a copy, run its tests, and say which change no test notices."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.constants import CHANGES, Change

ROOT = Path(__file__).parents[2]
COPIED = ("ocm_core", "tests", "params", "docs", "reports", "README.md", "pyproject.toml")


def main(wanted: str = "") -> int:
    unnoticed = 0
    with TemporaryDirectory() as folder:
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, Path(folder, name))
        for change in (change for change in CHANGES if wanted in change.file):
            noticed = _noticed(Path(folder), change)
            state = "noticed" if noticed else "NOT NOTICED"
            told = f"{change.file}: {change.before} → {change.after} ({change.tests})"
            print(f"{state}: {told}", flush=True)
            unnoticed += not noticed
    return 1 if unnoticed else 0


def _noticed(root: Path, change: Change) -> bool:
    file = root / "ocm_core" / change.file
    text = file.read_text()
    if text.count(change.before) != 1:
        raise SystemExit(f"{change.file}: {change.before!r} is there {text.count(change.before)}×")
    file.write_text(text.replace(change.before, change.after))
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", *change.tests.split(" ", 2)]
        environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=root, capture_output=True, env=environment)
    finally:
        file.write_text(text)
    if done.returncode not in (0, 1):  # 5: no tests; others: pytest itself
        raise SystemExit(f"{' '.join(command)}\n{done.stdout.decode()}")
    return done.returncode == 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
