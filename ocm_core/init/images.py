"""Look at images: how many, how large, grey or in colour, in which classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.io.image_files import (
    EXPECTED,
    FORMATS,
    FileEntry,
    ImageFiles,
    images_among,
    open_image_files,
)
from ocm_core.text import plural

SAMPLED = 200  # images, spread over all of them; the first stage opens every one
FEWEST = 10  # images that an experiment makes sense with
GREY = ("1", "L", "LA", "I;16")
PICTURES = (".bmp", ".gif", ".tif", ".tiff", ".heic", ".avif")  # formats that are not read


@dataclass(frozen=True)
class ImageSummary:
    """The images of a folder or an archive."""

    path: Path
    count: int
    sizes: Counter[tuple[int, int]]  # width and height of those that were opened
    grey: bool
    folders: tuple[str, ...]  # of classes; none: the images lie in one folder
    skipped: int = 0  # pictures of formats that are not read

    @property
    def shorter_edge(self) -> int:
        """The shorter edge of the commonest size."""
        return min(self.sizes.most_common(1)[0][0])

    def all_are(self, side: int) -> bool:
        return set(self.sizes) == {(side, side)}

    def __str__(self) -> str:
        width, height = self.sizes.most_common(1)[0][0]
        size = f"{width}×{height}"
        if len(self.sizes) > 1:
            size = f"of {len(self.sizes)} sizes, most often {size}"
        classes = f", {plural(len(self.folders), 'sub-folder')}" if self.folders else ""
        skipped = f"; {plural(self.skipped, 'other picture')} skipped" if self.skipped else ""
        colour = "grey" if self.grey else "colour"
        return f"{plural(self.count, 'image')}, {size}, {colour}{classes}{skipped}"


@dataclass(frozen=True)
class CaptionSummary:
    """The captions of all images."""

    file: Path
    count: int
    distinct: int

    def __str__(self) -> str:
        return f"{plural(self.count, 'caption')}, {self.distinct} of them different"


def look(path: Path) -> ImageSummary:
    """Open some of the images, and refuse what cannot be an image set."""
    files = open_image_files(path)
    entries, others = images_among(files.entries)
    if len(entries) < FEWEST:
        raise OcmError(f"{path}: {EXPECTED}, at least {FEWEST}, found {len(entries) or 'none'}")
    if empty := [entry.name for entry in entries if entry.size == 0]:
        raise OcmError(
            f"{files.where(empty[0])}: an empty file, one of {len(empty)}; remove or restore it"
        )
    chosen = [entries[at * len(entries) // SAMPLED] for at in range(SAMPLED)]
    heads = [head for entry in dict.fromkeys(chosen) if (head := _head(files, entry))]
    if not heads:
        raise OcmError(f"{path}: none of {SAMPLED} files could be opened as an image")
    return ImageSummary(
        path=path,
        count=len(entries),
        sizes=Counter(size for size, _ in heads),
        grey=all(mode in GREY for _, mode in heads),
        folders=_classes([entry.name for entry in entries], path),
        skipped=sum(count for suffix, count in others.items() if suffix in PICTURES),
    )


def look_at_captions(file: Path, images: Path) -> CaptionSummary:
    """Read the caption of every image; those without are named."""
    from ocm_core.datasets.base import distinct
    from ocm_core.datasets.folder import read_column

    entries, _ = images_among(open_image_files(images).entries)
    captions = read_column(file, "caption", [entry.name for entry in entries], images)
    return CaptionSummary(file, len(captions), len(distinct(captions.values())))


def _head(files: ImageFiles, entry: FileEntry) -> tuple[tuple[int, int], str] | None:
    """Return size and mode from the file's head; the first stage names damaged files."""
    from PIL import Image

    try:
        with Image.open(BytesIO(files.content(entry.name)), formats=FORMATS) as image:
            return image.size, image.mode
    except Exception:
        return None


def _classes(names: Sequence[str], path: Path) -> tuple[str, ...]:
    from ocm_core.datasets.folder import sub_folders

    try:
        folders = set(sub_folders(names, path).values())
    except OcmError:
        return ()  # some lie outside of any
    return tuple(sorted(folders)) if len(folders) > 1 else ()
