"""One pass over image files: each is decoded once, and what was found is kept.

A line of JSON for each file, written when it has been looked at: a pass that was killed goes on
where it was, and files that are new or changed are the only ones to be looked at again.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import TypeAdapter, ValidationError

from ocm_core.datasets._images import FORMATS, MOST_PIXELS
from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in
from ocm_core.io.disk import room_for
from ocm_core.io.image_files import MOST_BYTES, FileEntry, ImageFiles
from ocm_core.io.reading import reason
from ocm_core.progress import track

LOG = logging.getLogger("ocm")


@dataclass(frozen=True)
class CheckedImage:
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


def checked(
    files: ImageFiles, entries: Collection[FileEntry], folder: Path
) -> dict[str, CheckedImage]:
    """Every entry, by name; looked at now, or found in the record that lies in `folder`."""
    place = hashlib.sha256(str(files.path.absolute()).encode(errors="surrogateescape"))
    record = folder / f"{place.hexdigest()[:16]}.checked.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder), room_for(record):
        known = _recorded(record)
        waiting = [entry for entry in entries if entry not in known]
        with record.open("a", encoding="utf-8") as lines:
            for entry in track(waiting, f"looking at {files.path}", LOG):
                known[entry] = _looked_at(files, entry)
                lines.write(f"{json.dumps(asdict(known[entry]))}\n")
    return {entry.name: known[entry] for entry in entries}


def digest(images: Collection[CheckedImage]) -> str:
    """Of names and contents, as `sha256sum` lists them."""
    lines = "".join(f"{image.sha256}  {image.name}\n" for image in images)
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def duplicates(images: Collection[CheckedImage]) -> int:
    """Images that are the same file as another one, under another name."""
    return len(images) - len({image.sha256 for image in images})


def _recorded(record: Path) -> dict[FileEntry, CheckedImage]:
    """It only saves time: a line that is cut or damaged is as good as none."""
    if not record.exists():
        return {}
    with record.open("rb") as lines:
        return {image.entry: image for image in _parsed(lines)}


def _parsed(lines: Iterator[bytes]) -> Iterator[CheckedImage]:
    parser = TypeAdapter(CheckedImage)
    for line in lines:
        try:
            yield parser.validate_json(line)
        except ValidationError:
            LOG.warning("a line of the record of images is damaged; its file is looked at again")


def _looked_at(files: ImageFiles, entry: FileEntry) -> CheckedImage:
    sha256, (width, height), problem = "", (0, 0), None
    try:
        if entry.size > MOST_BYTES:
            raise ValueError(f"{entry.size} bytes, more than {MOST_BYTES}")
        content = files.content(entry.name)
        sha256 = hashlib.sha256(content).hexdigest()
        width, height = _decoded_size(content)
    except UnidentifiedImageError:
        problem = f"no {', '.join(FORMATS)} image"
    except Exception as error:  # a library tells of damage in dozens of ways (io/reading.py)
        problem = reason(error)
    return CheckedImage(*entry, sha256, width, height, problem)


def _decoded_size(content: bytes) -> tuple[int, int]:
    with Image.open(BytesIO(content), formats=FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width}×{image.height} pixels, more than {MOST_PIXELS}")
        if image.mode.startswith(("I", "F")):
            raise ValueError(f"mode {image.mode}: more than 8 bits a channel; save it with 8")
        image.load()
        return ImageOps.exif_transpose(image).size


@dataclass(frozen=True)
class CheckedFiles:
    """Images in a given order, as they were when they were looked at."""

    files: ImageFiles
    names: list[str]
    found: Mapping[str, CheckedImage]

    def __len__(self) -> int:
        return len(self.names)

    def where(self, row: int) -> str:
        return self.files.where(self.names[row])

    def content(self, row: int) -> bytes:
        name = self.names[row]
        content = self.files.content(name)
        if hashlib.sha256(content).hexdigest() != self.found[name].sha256:
            raise OcmError(
                f"{self.where(row)}: changed while it was in use; run again, and leave it alone"
            )
        return content
