"""Artifacts: folders that exist only once their manifest does.

The manifest names every file with its sha256, and the parameters, sources and inputs that it was
made from. It holds no time, host or absolute path, so the same work gives the same bytes anywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.digests import sha256_of
from ocm_core.io.lock import FileRecord
from ocm_core.io.seals import broken, pieces
from ocm_core.pipeline.locks import reading
from ocm_core.pipeline.table import Task

ROOT = Path("artifacts")
MANIFEST = "manifest.json"
BOOKKEEPING = {MANIFEST, f"{MANIFEST}.tmp", ".snakemake_timestamp"}
VERSIONED = ("ocm-core", "numpy", "torch", "zarr")

Manifest = dict[str, Any]
# printable ASCII, as we name files, and nothing that the system could not even look up
FileName = Annotated[str, Field(max_length=1024, pattern=r"^/?([ -.0-~]{1,255}/)*[ -.0-~]{1,255}$")]


class ManifestShape(BaseModel):
    """What a manifest must have to be read; `finish` writes more."""

    model_config = ConfigDict(extra="allow", strict=True)

    files: dict[FileName, FileRecord]
    outputs: dict[FileName, FileRecord]


def folder_of(experiment: str, task: Task) -> Path:
    return ROOT / experiment / task.stage / task.part


def manifest_of(experiment: str, task: Task) -> Path:
    return folder_of(experiment, task) / MANIFEST


def text_digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Of the packages that may change what a stage computes."""
    return {name: version(name) for name in VERSIONED}


def parsed(content: bytes) -> Manifest:
    """A `ValidationError` says what is no manifest in it."""
    return ManifestShape.model_validate_json(content).model_dump()


def read_manifest(experiment: str, task: Task) -> Manifest:
    file = manifest_of(experiment, task)
    try:
        return parsed(file.read_bytes())
    except FileNotFoundError:
        raise OcmError(f"{file}: no such artifact; `snakemake --cores 1 {file}` makes it") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "not a manifest"
        raise OcmError(
            f"{file}: {key}: {first['msg']}; `snakemake --cores 1 --force {file}` mends it"
        ) from None


def differences(experiment: str, task: Task) -> Iterator[str]:
    """What on disk is not as the manifest says: missing, extra or changed files."""
    folder = folder_of(experiment, task)
    with reading(folder):
        manifest = read_manifest(experiment, task)
        outputs = {name: Path(name) for name in manifest["outputs"]}
        yield from compare(folder, manifest, outputs)


def compare(folder: Path, manifest: Manifest, outputs: Mapping[str, Path]) -> Iterator[str]:
    """How a folder, and what it has outside of itself, differ from a manifest."""
    recorded = {folder / name: entry for name, entry in manifest["files"].items()}
    recorded |= {file: manifest["outputs"][name] for name, file in outputs.items()}
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


def signed(
    experiment: str, task: Task, folder: Path, outputs: Mapping[str, Path], facts: Mapping[str, Any]
) -> str:
    """The manifest of what a job has written: of its folder, and of its outputs by their names."""
    manifest = {
        "experiment": experiment,
        "stage": task.stage,
        "part": task.part,
        "files": {file.relative_to(folder).as_posix(): _entry(file) for file in _files(folder)},
        "outputs": {name: _entry(file) for name, file in outputs.items()},
        "versions": versions(),
        **facts,
    }
    return json.dumps(manifest, indent=1, sort_keys=True) + "\n"


def _entry(file: Path) -> dict[str, str | int]:
    """Size and digest; a piece that is not what its writer has sealed is not signed."""
    sha256 = sha256_of(file)
    if broken(file, sha256):
        raise OcmError(
            f"{file}: changed since it was written, on the disk or by another program; run the job "
            "again: it makes this piece anew and keeps the others"
        )
    return {"sha256": sha256, "bytes": file.stat().st_size}


def _files(folder: Path) -> list[Path]:
    return [path for path in pieces(folder) if path.name not in BOOKKEEPING]
