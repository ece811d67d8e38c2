"""Image files of a folder, a zip or a tar: listed at once, checked once, read one at a time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from zipfile import is_zipfile

from pydantic import TypeAdapter, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.archives import open_zip, read_range, tar_ranges
from ocm_core.io.atomic import alone_in, room_for
from ocm_core.io.reading import head_of, reading, reason
from ocm_core.progress import track

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import UInt8
    from PIL import Image

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


@dataclass(frozen=True)
class ImageFiles:
    """The files of a folder or an archive, images or not, in no order."""

    path: Path
    entries: list[FileEntry]
    content: Callable[[str], bytes]  # reads the named file

    def where(self, name: str) -> str:
        """Name a file, for messages."""
        return str(self.path / name) if self.path.is_dir() else f"{self.path}: {name}"


def open_image_files(path: Path) -> ImageFiles:
    """Open a folder, a zip or an uncompressed tar."""
    if path.is_dir():
        return ImageFiles(path, folder_entries(path), lambda name: (path / name).read_bytes())
    if not path.is_file():
        raise OcmError(f"{path}: not there; {EXPECTED}")
    if is_zipfile(path):
        return zip_files(path)
    if not tarfile.is_tarfile(path) or head_of(path).startswith(COMPRESSED):
        found = "found a file that is none of them, or a compressed tar"
        raise OcmError(f"{path}: {EXPECTED}, {found}; unpack it, and give the folder")
    places = {name.decode(): (offset, size) for name, offset, size in tar_ranges(path)}
    modified = path.stat().st_mtime_ns
    entries = [FileEntry(name, size, modified) for name, (_, size) in places.items()]
    return ImageFiles(path, entries, lambda name: read_range(path, *places[name]))


def folder_entries(path: Path) -> list[FileEntry]:
    """Return all files below a folder, in no order."""
    entries = []
    for file in (Path(at, name) for at, _, names in os.walk(path) for name in names):
        name = file.relative_to(path).as_posix()
        try:
            status = file.stat()
            entries.append(FileEntry(name, status.st_size, status.st_mtime_ns))
        except OSError:  # a dangling link; reading it raises the error
            entries.append(FileEntry(name, 0, 0))
    return entries


def zip_files(path: Path) -> ImageFiles:
    """Open the members of a zip."""
    opened, modified = open_zip(path), path.stat().st_mtime_ns
    members = (member for member in opened.infolist() if not member.is_dir())
    entries = [FileEntry(member.filename, member.file_size, modified) for member in members]
    return ImageFiles(path, entries, opened.read)


def images_among(entries: Iterable[FileEntry]) -> tuple[list[FileEntry], dict[str, int]]:
    """Return the images, by name, and the number of other files of each suffix, but hidden ones."""
    images, others = [], Counter[str]()
    for entry in entries:
        path = PurePosixPath(entry.name)
        hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
        if not hidden and path.suffix.lower() in SUFFIXES:
            images.append(entry)
        elif not hidden:
            others[path.suffix.lower()] += 1
    return sorted(images), dict(sorted(others.items()))


@dataclass(frozen=True)
class SelectedFiles:
    """Some of the files, in a given order; refused if they are not of their sha256, if given."""

    files: ImageFiles
    names: list[str]
    sha256: list[str] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def where(self, row: int) -> str:
        return self.files.where(self.names[row])

    def content(self, row: int) -> bytes:
        with reading(self.where(row), "a whole file", "restore it or fetch it again"):
            content = self.files.content(self.names[row])
        if self.sha256 and hashlib.sha256(content).hexdigest() != self.sha256[row]:
            raise OcmError(f"{self.where(row)}: changed while it was in use; run again")
        return content


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


def checked(
    files: ImageFiles, entries: Collection[FileEntry], folder: Path
) -> dict[str, CheckedImage]:
    """Return every entry by name; what the record in `folder` has, and is the same, is not read."""
    place = hashlib.sha256(str(files.path.absolute()).encode(errors="surrogateescape"))
    record = folder / f"{place.hexdigest()[:16]}.checked.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    images, parser = dict[FileEntry, CheckedImage](), TypeAdapter(CheckedImage)
    with alone_in(folder), room_for(record):
        for line in record.read_bytes().splitlines() if record.exists() else ():
            try:
                image = parser.validate_json(line)
                images[FileEntry(image.name, image.size, image.modified)] = image
            except ValidationError:  # the record only saves time
                LOG.warning("a damaged line in the record of images: its file is looked at again")
        waiting = [entry for entry in entries if entry not in images]
        with record.open("a", encoding="utf-8") as lines:
            for entry in track(waiting, f"looking at {files.path}"):
                images[entry] = _check(files, entry)
                lines.write(f"{json.dumps(asdict(images[entry]))}\n")
    return {entry.name: images[entry] for entry in entries}


def checksum(images: Collection[CheckedImage]) -> str:
    """Return the sha256 of names and contents, listed as `sha256sum` does."""
    lines = "".join(f"{image.sha256}  {image.name}\n" for image in images)
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def _check(files: ImageFiles, entry: FileEntry) -> CheckedImage:
    from PIL import ImageOps

    sha256, (width, height), problem = "", (0, 0), None
    try:
        if entry.size > MOST_BYTES:
            raise ValueError(f"{entry.size} bytes, more than {MOST_BYTES}")
        content = files.content(entry.name)
        sha256 = hashlib.sha256(content).hexdigest()
        with open_image(content) as image:
            if image.mode.startswith(("I", "F")):
                raise ValueError(f"mode {image.mode}: more than 8 bits a channel; save it with 8")
            image.load()
            width, height = ImageOps.exif_transpose(image).size
    except Exception as error:  # a library reports damage in dozens of ways (io/reading.py)
        problem = reason(error)
    return CheckedImage(*entry, sha256, width, height, problem)


def open_image(content: bytes) -> Image.Image:
    """Read the head of an image of an allowed format and size."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"no {', '.join(FORMATS)} image") from None
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(f"{image.width}×{image.height} pixels, more than {MOST_PIXELS}")
    return image


def read_images(path: Path, shape: Sequence[int]) -> tuple[list[str], UInt8[np.ndarray, "n c h w"]]:
    """Return all images of a folder or archive, which have this shape, and their names as PNG."""
    import numpy as np

    files, (channels, *sides) = open_image_files(path), shape
    entries, _ = images_among(files.entries)
    names = [str(PurePosixPath(entry.name).with_suffix(".png")) for entry in entries]
    if not names:
        raise OcmError(f"{path}: {EXPECTED}, found no images")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise OcmError(f"{path}: several images become {twice[0]}; give them names of their own")
    mode, found = "RGB" if channels == 3 else "L", []
    for entry in entries:
        with (
            reading(files.where(entry.name), f"an image in {mode}", "convert it or take it out"),
            open_image(files.content(entry.name)) as image,
        ):
            if image.mode != mode or [image.height, image.width] != sides:
                size = f"{image.width}×{image.height} pixels in {image.mode}"
                raise ValueError(f"{size}; the model takes {sides[1]}×{sides[0]}")
            found.append(np.asarray(image).reshape(*sides, channels).transpose(2, 0, 1))
    return names, np.stack(found)
