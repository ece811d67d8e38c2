"""The image files of a folder, or of a zip or a tar of one: listed at once, read one at a time."""

from __future__ import annotations

import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol
from zipfile import ZipFile, is_zipfile

from ocm_core.errors import OcmError
from ocm_core.io.tars import tar_entries
from ocm_core.io.zips import open_zip

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")
MOST_BYTES = 256 << 20  # of one file; the largest photographs have some tens of millions
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")  # gzip, bzip2, xz
EXPECTED = "expected a folder, a zip or a plain tar of PNG, JPEG or WebP files"


class FileEntry(NamedTuple):
    """What tells whether a file is still the one that was looked at."""

    name: str  # relative, with `/`
    size: int
    modified: int  # ns; in an archive, that of the archive


class ImageFiles(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def entries(self) -> list[FileEntry]:
        """Of every file, images or not, in no order."""

    def where(self, name: str) -> str:
        """For messages."""

    def content(self, name: str) -> bytes: ...


def open_image_files(path: Path) -> ImageFiles:
    if path.is_dir():
        return FolderFiles(path)
    if not path.is_file():
        raise OcmError(f"{path}: not there; {EXPECTED}")
    if is_zipfile(path):
        return ZipFiles(path, open_zip(path))
    if not tarfile.is_tarfile(path):
        raise OcmError(f"{path}: {EXPECTED}, found a file that is none of them")
    with path.open("rb") as file:
        if file.read(6).startswith(COMPRESSED):
            raise OcmError(
                f"{path}: {EXPECTED}, found a compressed tar, whose files cannot be read in any"
                " order; unpack it, and give the folder"
            )
    return TarFiles(path, {name.decode(): (at, size) for name, at, size in tar_entries(path)})


def images_among(entries: Iterable[FileEntry]) -> tuple[list[FileEntry], dict[str, int]]:
    """The images, by name, and how many other files there are of each suffix.

    What is hidden is neither: `.DS_Store`, `__MACOSX/`.
    """
    images, others = [], Counter[str]()
    for entry in entries:
        path = PurePosixPath(entry.name)
        if any(part.startswith((".", "__MACOSX")) for part in path.parts):
            continue
        if path.suffix.lower() in SUFFIXES:
            images.append(entry)
        else:
            others[path.suffix.lower()] += 1
    return sorted(images), dict(sorted(others.items()))


@dataclass(frozen=True)
class FolderFiles:
    path: Path

    @property
    def entries(self) -> list[FileEntry]:
        return [
            self._entry(Path(at, name)) for at, _, names in os.walk(self.path) for name in names
        ]

    def _entry(self, file: Path) -> FileEntry:
        name = file.relative_to(self.path).as_posix()
        try:
            found = file.stat()
        except OSError:  # a link that leads nowhere; reading it says so
            return FileEntry(name, 0, 0)
        return FileEntry(name, found.st_size, found.st_mtime_ns)

    def where(self, name: str) -> str:
        return str(self.path / name)

    def content(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


@dataclass(frozen=True)
class ZipFiles:
    path: Path
    opened: ZipFile

    @property
    def entries(self) -> list[FileEntry]:
        modified = self.path.stat().st_mtime_ns
        members = (member for member in self.opened.infolist() if not member.is_dir())
        return [FileEntry(member.filename, member.file_size, modified) for member in members]

    def where(self, name: str) -> str:
        return f"{self.path}: {name}"

    def content(self, name: str) -> bytes:
        return self.opened.read(name)


@dataclass(frozen=True)
class TarFiles:
    path: Path
    places: Mapping[str, tuple[int, int]]  # offset and size

    @property
    def entries(self) -> list[FileEntry]:
        modified = self.path.stat().st_mtime_ns
        return [FileEntry(name, size, modified) for name, (_, size) in self.places.items()]

    def where(self, name: str) -> str:
        return f"{self.path}: {name}"

    def content(self, name: str) -> bytes:
        offset, size = self.places[name]
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)
