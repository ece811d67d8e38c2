"""Artifacts: folders that exist only once their manifest does.

The manifest names every file with its sha256, and the parameters, sources and inputs that it was
made from. It is written last and by rename, and holds no time, host or absolute path, so the same
work gives the same bytes anywhere. While a job works, `.working.json` holds its key: after an
interruption the same key resumes, and any other key starts from an empty folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_text
from ocm_core.io.digests import sha256_of
from ocm_core.pipeline.table import Task

ROOT = Path("artifacts")
WORKING = ".working.json"
BOOKKEEPING = {
    *("manifest.json", "manifest.json.tmp"),
    *(WORKING, f"{WORKING}.tmp"),
    ".snakemake_timestamp",
}
VERSIONED = ("ocm-core", "numpy", "torch", "zarr")

Manifest = dict[str, Any]


def folder_of(experiment: str, task: Task) -> Path:
    return ROOT / experiment / task.stage / task.part


def manifest_of(experiment: str, task: Task) -> Path:
    return folder_of(experiment, task) / "manifest.json"


def text_digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_manifest(experiment: str, task: Task) -> Manifest:
    file = manifest_of(experiment, task)
    try:
        manifest: Manifest = json.loads(file.read_text())
    except FileNotFoundError:
        raise OcmError(f"{file}: no such artifact; `snakemake --cores 1 {file}` makes it") from None
    except ValueError:
        raise OcmError(f"{file}: not JSON; `snakemake --cores 1 --force {file}` mends it") from None
    return manifest


def differences(experiment: str, task: Task) -> Iterator[str]:
    """What on disk is not as the manifest says: missing, extra or changed files."""
    manifest = read_manifest(experiment, task)
    folder = folder_of(experiment, task)
    recorded = {folder / name: entry for name, entry in manifest["files"].items()}
    recorded |= {Path(name): entry for name, entry in manifest["outputs"].items()}
    for file in sorted(set(_files(folder)) - recorded.keys()):
        yield f"{file}: extra, the manifest does not name it"
    for file, entry in recorded.items():
        if not file.is_file():
            yield f"{file}: missing"
        elif (size := file.stat().st_size) != entry["bytes"]:
            yield f"{file}: changed, {size} bytes instead of {entry['bytes']}"
        elif sha256_of(file) != entry["sha256"]:
            yield f"{file}: changed, its sha256 is not the manifest's"


def checked_folder(experiment: str, task: Task) -> Path:
    """The folder of an input, or an error that names what is wrong with it."""
    wrong = list(differences(experiment, task))
    if wrong:
        again = f"`snakemake --cores 1 --force {manifest_of(experiment, task)}` makes it again"
        raise OcmError("\n".join([*wrong, again]))
    return folder_of(experiment, task)


@contextmanager
def sole_writer(experiment: str, task: Task) -> Iterator[None]:
    """Hold the artifact's lock. The system frees it when the process ends, however it ends."""
    file = ROOT / experiment / ".locks" / f"{task.stage}-{task.part}"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OcmError(
                f"{folder_of(experiment, task)}: another process is writing it; wait for it to end"
            ) from None
        yield


def prepare(folder: Path, key: str) -> None:
    """Make the folder ready for a job: keep what an interrupted run with the same key left."""
    marker = folder / WORKING
    text = json.dumps({"key": key}) + "\n"
    (folder / "manifest.json").unlink(missing_ok=True)
    if not (marker.exists() and marker.read_text() == text):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_text(marker, text)


def finish(experiment: str, task: Task, outputs: Iterable[Path], facts: Mapping[str, Any]) -> None:
    """Hash everything that the job has written and write the manifest."""
    folder = folder_of(experiment, task)
    manifest = {
        "experiment": experiment,
        "stage": task.stage,
        "part": task.part,
        "files": {file.relative_to(folder).as_posix(): _entry(file) for file in _files(folder)},
        "outputs": {file.as_posix(): _entry(file) for file in outputs},
        "versions": {name: version(name) for name in VERSIONED},
        **facts,
    }
    write_text(folder / "manifest.json", json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    (folder / WORKING).unlink()


def _entry(file: Path) -> dict[str, str | int]:
    return {"sha256": sha256_of(file), "bytes": file.stat().st_size}


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if path.name not in BOOKKEEPING)
