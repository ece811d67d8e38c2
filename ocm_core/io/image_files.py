"""Image files of a folder, a zip or a tar: listed at once, checked once, read one at a time.

`checked` decodes every image once. It keeps a line of JSON per file, so that an interrupted pass
goes on where it stopped, and later passes look only at files that are new or have changed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tarfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol
from zipfile import ZipFile, is_zipfile

from pydantic import TypeAdapter, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in, room_for
from ocm_core.io.members import no_member, open_zip, tar_ranges
from ocm_core.io.reading import reading, reason
from ocm_core.progress import track

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")
FORMATS = ("JPEG", "PNG", "WEBP")
MOST_BYTES = 256 << 20  # of one file; the largest photographs have some tens of millions
MOST_PIXELS = 80_000_000  # ImageNet's largest photograph has 61 million
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")  # gzip, bzip2, xz
EXPECTED = "expected a folder, a zip or a plain tar of PNG, JPEG or WebP files"
LOG = logging.getLogger("ocm")


class FileEntry(NamedTuple):
    """Name, size and time of a file: if they are the same, it has not changed."""

    name: str  # relative, with `/`
    size: int
    modified: int  # ns; in an archive, that of the archive


class ImageFiles(Protocol):
    """The files of a folder or an archive."""

    @property
    def path(self) -> Path: ...
    @property
    def entries(self) -> list[FileEntry]:
        """All files, images or not, in no order."""

    def where(self, name: str) -> str:
        """Name the file, for messages."""

    def content(self, name: str) -> bytes:
        """Read one file."""


def open_image_files(path: Path) -> ImageFiles:
    """Open a folder, a zip or an uncompressed tar."""
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
    return TarFiles(path, {name.decode(): (at, size) for name, at, size in tar_ranges(path)})


def images_among(entries: Iterable[FileEntry]) -> tuple[list[FileEntry], dict[str, int]]:
    """Return the images, by name, and the number of other files of each suffix.

    Hidden files count as neither: `.DS_Store`, `__MACOSX/`.
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
    """The files below a folder."""

    path: Path

    @property
    def entries(self) -> list[FileEntry]:
        return [
            self._entry(Path(at, name)) for at, _, names in os.walk(self.path) for name in names
        ]

    def _entry(self, file: Path) -> FileEntry:
        name = file.relative_to(self.path).as_posix()
        try:
            status = file.stat()
        except OSError:  # a dangling link; reading it raises the error
            return FileEntry(name, 0, 0)
        return FileEntry(name, status.st_size, status.st_mtime_ns)

    def where(self, name: str) -> str:
        return str(self.path / name)

    def content(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


@dataclass(frozen=True)
class ZipFiles:
    """The members of a zip."""

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
        if name not in self.opened.NameToInfo:
            raise no_member(self.path, name)
        return self.opened.read(name)


@dataclass(frozen=True)
class TarFiles:
    """The members of an uncompressed tar."""

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


@dataclass(frozen=True)
class SelectedFiles:
    """Some of the files, in a given order."""

    files: ImageFiles
    names: list[str]

    def __len__(self) -> int:
        return len(self.names)

    def where(self, row: int) -> str:
        """Name the file, for messages."""
        return self.files.where(self.names[row])

    def content(self, row: int) -> bytes:
        """Read one file."""
        with reading(self.where(row), "a whole file", "restore it or fetch it again"):
            return self.files.content(self.names[row])


@dataclass(frozen=True)
class CheckedImage:
    """An image file as it was when it was decoded for the first time."""

    name: str
    size: int
    modified: int
    sha256: str
    width: int
    height: int
    problem: str | None  # why it cannot be read

    @property
    def entry(self) -> FileEntry:
        return FileEntry(self.name, self.size, self.modified)


@dataclass(frozen=True)
class CheckedFiles(SelectedFiles):
    """Some of the files, refused if they have changed since they were checked."""

    images: Mapping[str, CheckedImage]

    def content(self, row: int) -> bytes:
        content = super().content(row)
        if hashlib.sha256(content).hexdigest() != self.images[self.names[row]].sha256:
            raise OcmError(
                f"{self.where(row)}: changed while it was in use; run again, and leave it alone"
            )
        return content


def checked(
    files: ImageFiles, entries: Collection[FileEntry], folder: Path
) -> dict[str, CheckedImage]:
    """Return every entry by name: decoded now, or taken from the record in `folder`."""
    place = hashlib.sha256(str(files.path.absolute()).encode(errors="surrogateescape"))
    record = folder / f"{place.hexdigest()[:16]}.checked.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder), room_for(record):
        images = _recorded(record)
        waiting = [entry for entry in entries if entry not in images]
        with record.open("a", encoding="utf-8") as lines:
            for entry in track(waiting, f"looking at {files.path}", LOG):
                images[entry] = _check(files, entry)
                lines.write(f"{json.dumps(asdict(images[entry]))}\n")
    return {entry.name: images[entry] for entry in entries}


def checksum(images: Collection[CheckedImage]) -> str:
    """Return the sha256 of names and contents, listed as `sha256sum` does."""
    lines = "".join(f"{image.sha256}  {image.name}\n" for image in images)
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def _recorded(record: Path) -> dict[FileEntry, CheckedImage]:
    if not record.exists():
        return {}
    with record.open("rb") as lines:
        return {image.entry: image for image in _parsed(lines)}


def _parsed(lines: Iterator[bytes]) -> Iterator[CheckedImage]:
    """Skip damaged lines: the record only saves time."""
    parser = TypeAdapter(CheckedImage)
    for line in lines:
        try:
            yield parser.validate_json(line)
        except ValidationError:
            LOG.warning("a line of the record of images is damaged; its file is looked at again")


def _check(files: ImageFiles, entry: FileEntry) -> CheckedImage:
    sha256, (width, height), problem = "", (0, 0), None
    try:
        if entry.size > MOST_BYTES:
            raise ValueError(f"{entry.size} bytes, more than {MOST_BYTES}")
        content = files.content(entry.name)
        sha256 = hashlib.sha256(content).hexdigest()
        width, height = _decoded_size(content)
    except Exception as error:  # a library reports damage in dozens of ways (io/reading.py)
        problem = reason(error)
    return CheckedImage(*entry, sha256, width, height, problem)


def _decoded_size(content: bytes) -> tuple[int, int]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        image = Image.open(BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"no {', '.join(FORMATS)} image") from None
    with image:
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width}×{image.height} pixels, more than {MOST_PIXELS}")
        if image.mode.startswith(("I", "F")):
            raise ValueError(f"mode {image.mode}: more than 8 bits a channel; save it with 8")
        image.load()
        return ImageOps.exif_transpose(image).size
