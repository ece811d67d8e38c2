"""CelebA at 64×64: the aligned JPEGs, cropped as DDIM and the covariance papers crop them.

The crop is 128×128 around column 89 and row 121, halved by Pillow's bilinear filter, which widens
with the scale (torchvision's `Resize` on images). Training is partition 0, testing partition 2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image
from PIL.Image import Resampling

from ocm_core.datasets._images import ImageSplit
from ocm_core.datasets.interface import DataSet
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, locate
from ocm_core.io.download import google_drive
from ocm_core.io.reading import reading
from ocm_core.io.zips import ZippedImages, open_zip
from ocm_core.schema.datasets import Celeba64Data

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


def open_data(data: Celeba64Data, archives: Path) -> DataSet:
    images, partition = (locate(ARCHIVES[name], archives) for name in ("images", "partition"))
    opened = open_zip(images.path)
    names = _names(partition.path)
    return DataSet(
        splits={
            split: ImageSplit(
                ZippedImages(images.path, opened, names[split]), crop, data.shape[-1], size=SIZE
            )
            for split in PARTITIONS
        },
        levels=data.levels,
        provenance={
            "archives": {file.path.name: file.sha256 for file in (images, partition)},
            "crop": "columns 25 to 152, rows 57 to 184; bilinear to 64×64",
            "partitions": PARTITIONS,
        },
    )


def crop(image: Image.Image) -> Image.Image:
    box = (COLUMN - HALF, ROW - HALF, COLUMN + HALF, ROW + HALF)
    return image.crop(box).resize((HALF, HALF), Resampling.BILINEAR)


def _names(path: Path) -> dict[str, list[str]]:
    """The members of each split, from lines like `000001.jpg 0`."""
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
