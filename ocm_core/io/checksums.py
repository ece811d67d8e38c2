"""Checksums of files, and those that an interrupted job leaves beside its finished pieces."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ocm_core.io.atomic import write_text

FOLDER = ".checksums"
LOG = logging.getLogger("ocm")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class FileRecord:
    """Digest and size of a file."""

    sha256: str
    bytes: int

    @classmethod
    def of(cls, path: Path) -> FileRecord:
        """Read the file for its digest."""
        return cls(sha256_of(path), path.stat().st_size)


def record_checksum(file: Path, key: str = "") -> None:
    """Record that the file is finished, and what it was made for."""
    write_text(record_of(file), f"{sha256_of(file)} {key}\n")


def is_intact(file: Path, key: str = "") -> bool:
    """Return whether the file is as it was recorded for `key`; warn if it has changed since."""
    if not file.is_file() or not record_of(file).is_file():
        return False
    same = record_of(file).read_bytes() == f"{sha256_of(file)} {key}\n".encode()
    if not same:
        LOG.warning("%s: has changed since an interrupted run wrote it; making it again", file)
    return same


def is_recorded_otherwise(file: Path, sha256: str) -> bool:
    """Return whether a record exists and holds another checksum than this."""
    path = record_of(file)
    return path.is_file() and not path.read_bytes().startswith(sha256.encode())


def data_files(folder: Path) -> Iterator[Path]:
    """Yield every file below the folder, sorted, without the recorded checksums."""
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return (path for path in sorted(files) if path.parent.name != FOLDER)


def remove_unfinished(folder: Path) -> None:
    """Remove files that no job has recorded as finished, and then empty folders."""
    for file in data_files(folder):
        if not record_of(file).is_file():
            file.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):  # inner folders first
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def remove_records(folder: Path) -> None:
    """Remove the recorded checksums below the folder, and its own record."""
    for path in list(folder.rglob(FOLDER)):
        shutil.rmtree(path)
    record_of(folder).unlink(missing_ok=True)
    with suppress(OSError):  # not empty, or it never existed
        record_of(folder).parent.rmdir()


def record_of(file: Path) -> Path:
    """Return where the checksum of a file is kept, or what a folder is made for."""
    return file.parent / FOLDER / file.name
