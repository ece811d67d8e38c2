"""Look at images: how many, how large, grey or in colour, in which classes."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.io.image_files import EXPECTED, FORMATS, images_among, open_image_files
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
    skipped: int  # pictures of formats that are not read

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


def look(path: Path) -> ImageSummary:
    """Open some of the images, and refuse what cannot be an image set."""
    from PIL import Image

    from ocm_core.datasets.folder import sub_folders

    files = open_image_files(path)
    entries, others = images_among(files.entries)
    if len(entries) < FEWEST:
        raise OcmError(f"{path}: {EXPECTED}, at least {FEWEST}, found {len(entries) or 'none'}")
    if empty := [entry.name for entry in entries if entry.size == 0]:
        raise OcmError(f"{files.where(empty[0])}: an empty file; remove or restore it")
    heads: list[tuple[tuple[int, int], str]] = []
    for entry in dict.fromkeys(entries[at * len(entries) // SAMPLED] for at in range(SAMPLED)):
        with (
            suppress(Exception),  # the first stage names damaged files
            Image.open(BytesIO(files.content(entry.name)), formats=FORMATS) as image,
        ):
            heads.append((image.size, image.mode))
    if not heads:
        raise OcmError(f"{path}: none of {SAMPLED} files could be opened as an image")
    folders: set[str] = set()
    with suppress(OcmError):  # some lie outside of any
        folders = {*sub_folders([entry.name for entry in entries], path).values()}
    return ImageSummary(
        path=path,
        count=len(entries),
        sizes=Counter(size for size, _ in heads),
        grey=all(mode in GREY for _, mode in heads),
        folders=tuple(sorted(folders)) if len(folders) > 1 else (),
        skipped=sum(count for suffix, count in others.items() if suffix in PICTURES),
    )


def distinct_captions(file: Path, images: Path) -> int:
    """Count the different captions; images without one are named."""
    from ocm_core.datasets.base import distinct
    from ocm_core.datasets.folder import read_column

    entries, _ = images_among(open_image_files(images).entries)
    captions = read_column(file, "caption", [entry.name for entry in entries], images)
    return len(distinct(captions.values()))
