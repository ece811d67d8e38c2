"""A first look at images: how many, how large, grey or not, in which classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image

from ocm_core.datasets._annotations import read_column, sub_folders
from ocm_core.datasets._images import FORMATS
from ocm_core.datasets.interface import distinct
from ocm_core.errors import OcmError
from ocm_core.io.image_files import EXPECTED, FileEntry, ImageFiles, images_among, open_image_files
from ocm_core.text import plural

LOOKED_AT = 200  # images, spread over all of them; the first stage looks at every one
GREY = ("1", "L", "LA", "I;16")


@dataclass(frozen=True)
class ImagesFound:
    path: Path
    count: int
    sizes: Counter[tuple[int, int]]  # width and height of those that were looked at
    grey: bool
    folders: tuple[str, ...]  # of classes; none: the images lie in one folder

    @property
    def shorter_edge(self) -> int:
        """Of the commonest size."""
        return min(self.sizes.most_common(1)[0][0])

    def all_are(self, side: int) -> bool:
        return set(self.sizes) == {(side, side)}

    def __str__(self) -> str:
        (width, height), often = self.sizes.most_common(1)[0]
        share = "all" if len(self.sizes) == 1 else f"{often} of {self.sizes.total()} looked at"
        classes = f", {plural(len(self.folders), 'sub-folder')}" if self.folders else ""
        colour = "grey" if self.grey else "colour"
        return f"{plural(self.count, 'image')}, {width}×{height} ({share}), {colour}{classes}"


def look(path: Path) -> ImagesFound:
    files = open_image_files(path)
    entries, _ = images_among(files.entries)
    if not entries:
        raise OcmError(f"{path}: {EXPECTED}, found none")
    chosen = [entries[at * len(entries) // LOOKED_AT] for at in range(LOOKED_AT)]
    heads = [head for entry in dict.fromkeys(chosen) if (head := _head(files, entry))]
    if not heads:
        raise OcmError(f"{path}: none of {LOOKED_AT} files could be opened as an image")
    sizes = Counter(size for size, _ in heads)
    grey = all(mode in GREY for _, mode in heads)
    return ImagesFound(path, len(entries), sizes, grey, _classes([e.name for e in entries], path))


@dataclass(frozen=True)
class CaptionsFound:
    file: Path
    count: int
    distinct: int

    def __str__(self) -> str:
        return f"{plural(self.count, 'caption')}, {self.distinct} of them different"


def look_at_captions(file: Path, images: Path) -> CaptionsFound:
    """Of every image; those without are named."""
    if not file.is_file():
        raise OcmError(f"{file}: no such file; expected a CSV with file and caption")
    entries, _ = images_among(open_image_files(images).entries)
    given = read_column(file, "caption", [entry.name for entry in entries], images)
    return CaptionsFound(file, len(given), len(distinct(given.values())))


def _head(files: ImageFiles, entry: FileEntry) -> tuple[tuple[int, int], str] | None:
    """Size and mode, from the file's head; the first stage names the files that are damaged."""
    try:
        with Image.open(BytesIO(files.content(entry.name)), formats=FORMATS) as image:
            return image.size, image.mode
    except Exception:
        return None


def _classes(names: Sequence[str], path: Path) -> tuple[str, ...]:
    try:
        found = set(sub_folders(names, path).values())
    except OcmError:
        return ()  # some lie outside of any
    return tuple(sorted(found)) if len(found) > 1 else ()
