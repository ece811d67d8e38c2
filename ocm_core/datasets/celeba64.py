"""CelebA at 64×64: the aligned JPEGs, cropped as DDIM and the covariance papers crop them.

The crop is 128×128 around column 89 and row 121, halved by Pillow's bilinear filter, which widens
with the scale (torchvision's `Resize` on images). Training is partition 0, testing partition 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ocm_core.datasets.archived import ArchivedData, file_checksums
from ocm_core.datasets.base import DataSet
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive
from ocm_core.io.fetch import google_drive
from ocm_core.io.reading import reading

if TYPE_CHECKING:
    from PIL import Image

COLUMN, ROW, HALF = 89, 121, 64
SIZE = (178, 218)  # of the aligned images: width, height
PARTITIONS = {"train": "0", "test": "2"}

_PUBLISHED: dict[str, Any] = {
    "kind": "celeba64",
    "page": "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    "terms": "non-commercial research only",
}
ARCHIVES = {  # md5 in torchvision, bytes and sha256 in tensorflow/datasets, url_checksums
    "images": Archive(
        **_PUBLISHED,
        file="img_align_celeba.zip",
        url=google_drive("0B7EVK8r0v71pZjFTYXZWM3FlRnM"),
        md5="00d2c5bc6d35e252742224ab0c1e8fcb",
        bytes=1443490838,
        sha256="46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
    ),
    "partition": Archive(
        **_PUBLISHED,
        file="list_eval_partition.txt",
        url=google_drive("0B7EVK8r0v71pY0NSMzRuSXJEVkk"),
        md5="d32c9cbf5e040fd4025c592c306e6668",
        bytes=2836386,
        sha256="fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
    ),
}


class Celeba64Data(ArchivedData):
    """Aligned faces without labels."""

    shape: ClassVar[tuple[int, ...]] = (3, 64, 64)
    classes: ClassVar[int] = 0
    kind: Literal["celeba64"]

    def open(self, archives: Path) -> DataSet:
        from ocm_core.datasets._images import ImageSplit
        from ocm_core.io.image_files import SelectedFiles, ZipFiles
        from ocm_core.io.members import open_zip

        located = self.locate(archives)
        path = located["images"].path
        files = ZipFiles(path, open_zip(path))
        names = _names(located["partition"].path)
        return DataSet(
            splits={
                split: ImageSplit(
                    SelectedFiles(files, names[split]), crop, self.shape[-1], size=SIZE
                )
                for split in PARTITIONS
            },
            levels=self.levels,
            provenance={
                "archives": file_checksums(located.values()),
                "crop": "columns 25 to 152, rows 57 to 184; bilinear to 64×64",
                "partitions": PARTITIONS,
            },
        )

    def count_items(self) -> dict[str, int]:
        return {"train": 162_770, "test": 19_962}

    def needed_archives(self) -> dict[str, Archive]:
        return ARCHIVES


PARAMS = Celeba64Data


def crop(image: Image.Image) -> Image.Image:
    """Crop the face and halve it."""
    from PIL.Image import Resampling

    box = (COLUMN - HALF, ROW - HALF, COLUMN + HALF, ROW + HALF)
    return image.crop(box).resize((HALF, HALF), Resampling.BILINEAR)


def _names(path: Path) -> dict[str, list[str]]:
    """Return the members of each split, from lines like `000001.jpg 0`."""
    with reading(path, "lines of text", "remove it and fetch it again"):
        rows = [line.split() for line in path.read_text().splitlines()]
    if not rows or any(len(row) != 2 or row[1] not in ("0", "1", "2") for row in rows):
        raise OcmError(
            f"{path}: expected lines of a file name and 0, 1 or 2; remove it and fetch it again"
        )
    return {
        split: [f"img_align_celeba/{name}" for name, part in rows if part == wanted]
        for split, wanted in PARTITIONS.items()
    }
