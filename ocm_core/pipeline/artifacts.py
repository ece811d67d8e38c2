"""Artifacts: folders that exist only once their manifest does.

A manifest names every file with its sha256, the key (parameters, sources and inputs that the
artifact was made from), and itself with a digest. It holds no time, host or absolute path: the same
work gives the same bytes anywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.checksums import FileRecord, data_files, is_recorded_otherwise, sha256_of
from ocm_core.pipeline.stage import Task, stages

ROOT = Path("artifacts")
MANIFEST = "manifest.json"
BOOKKEEPING = {MANIFEST, f"{MANIFEST}.tmp", ".snakemake_timestamp"}
VERSIONED = ("ocm-core", "numpy", "torch", "zarr")  # packages that may change what is computed

# printable ASCII, as we name files, and nothing that the system could not even look up
FileName = Annotated[str, Field(max_length=1024, pattern=r"^/?([ -.0-~]{1,255}/)*[ -.0-~]{1,255}$")]


class Artifact:
    """A typed view of the folder that a stage leaves; each stage file defines one."""

    stage: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.stage = cls.__module__.rpartition(".")[2]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def task(cls, part: str = "all") -> Task:
        return Task(cls.stage, part)

    @cached_property
    def manifest(self) -> Manifest:
        return read_manifest(self.folder)


View = TypeVar("View", bound=Artifact)


class Key(BaseModel):
    """Everything that decides an artifact's bytes, as digests."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    parameters: str
    sources: str
    inputs: dict[str, str] = {}  # of the manifests that it takes, by task
    user_files: str | None = None  # names and sizes of the user's files that it reads

    @property
    def digest(self) -> str:
        return text_digest(self.model_dump())


class Manifest(BaseModel):
    """A list of an artifact's files, with the key that it was made from."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    experiment: str
    stage: str
    part: str
    key: Key
    files: dict[FileName, FileRecord]
    outputs: dict[FileName, FileRecord] = {}  # files outside of the folder
    pieces: dict[str, str] = {}  # what parts of the folder depend on, each by itself
    notes: dict[str, Any] = {}
    versions: dict[str, str]
    sha256: str = ""  # of all the above

    @property
    def text(self) -> str:
        """The content of the file, with a digest of all the rest."""
        tree = self.model_dump(mode="json", exclude={"sha256"})
        return json.dumps(tree | {"sha256": text_digest(tree)}, indent=1, sort_keys=True) + "\n"


def text_digest(value: object) -> str:
    """Return the sha256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute."""
    return {name: version(name) for name in VERSIONED}


def folder_of(experiment: str, task: Task) -> Path:
    """Return where the artifact of a task lies."""
    return ROOT / experiment / stages()[task.stage].phase / task.stage / task.part


def manifest_of(experiment: str, task: Task) -> Path:
    """Return the manifest's path: the target that Snakemake knows an artifact by."""
    return folder_of(experiment, task) / MANIFEST


def remake(manifest: Path) -> str:
    """Return the command that makes an artifact again, for messages."""
    return f"`snakemake --cores 1 --force {manifest}` makes it again"


def read_manifest(folder: Path) -> Manifest:
    """Read a manifest and check that it is as it was written."""
    file = folder / MANIFEST
    try:
        content = file.read_bytes()
        manifest = Manifest.model_validate_json(content)
    except FileNotFoundError:
        raise OcmError(f"{file}: no such artifact; `snakemake --cores 1 {file}` makes it") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "not a manifest"
        raise OcmError(f"{file}: damaged: {key}: {first['msg']}; {remake(file)}") from None
    if content != manifest.text.encode():
        raise OcmError(f"{file}: damaged: not as it was written; {remake(file)}")
    return manifest


def manifest_if_whole(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None if there is none that can be read."""
    try:
        return read_manifest(folder)
    except OcmError:
        return None


def differences(experiment: str, task: Task) -> Iterator[str]:
    """Yield what on disk is not as the manifest says: missing, extra or changed files."""
    folder = folder_of(experiment, task)
    yield from compare(folder, read_manifest(folder))


def compare(folder: Path, manifest: Manifest, outputs: Path = Path()) -> Iterator[str]:
    """Yield how a folder, and its outputs below another, differ from a manifest."""
    pairs = ((folder, manifest.files), (outputs, manifest.outputs))
    recorded = {place / name: entry for place, files in pairs for name, entry in files.items()}
    for file in sorted({*_files(folder)} - recorded.keys()):
        yield f"{file}: extra, the manifest does not name it"
    yield from changes(recorded)


def changes(recorded: Mapping[Path, FileRecord]) -> Iterator[str]:
    """Yield which files are missing or not as they were recorded."""
    for file, entry in recorded.items():
        if not file.is_file():
            yield f"{file}: missing"
        elif (size := file.stat().st_size) != entry.bytes:
            yield f"{file}: changed, {size} bytes instead of {entry.bytes}"
        elif sha256_of(file) != entry.sha256:
            yield f"{file}: changed, its sha256 is not the manifest's"


def checked_folder(experiment: str, task: Task) -> Path:
    """Return the folder of an artifact that is whole, or raise an error that says what is not."""
    if wrong := list(differences(experiment, task)):
        raise OcmError("\n".join([*wrong, remake(manifest_of(experiment, task))]))
    return folder_of(experiment, task)


def records(folder: Path) -> dict[str, FileRecord]:
    """Measure every file of a folder; one that has changed since it was finished is refused."""
    found = {file.relative_to(folder).as_posix(): FileRecord.of(file) for file in _files(folder)}
    for name, record in found.items():
        if is_recorded_otherwise(folder / name, record.sha256):
            again = "run the job again: it makes this piece anew and keeps the others"
            raise OcmError(f"{folder / name}: changed since it was written; {again}")
    return found


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in data_files(folder) if path.name not in BOOKKEEPING)
