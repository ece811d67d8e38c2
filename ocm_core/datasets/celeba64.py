"""CelebA at 64×64: the aligned JPEGs, cropped as DDIM and the covariance papers crop them.

The crop is 128×128 around column 89 and row 121, halved by Pillow's bilinear filter, which widens
with the scale (torchvision's `Resize` on images). Training is partition 0, testing partition 2.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from PIL import Image
from PIL.Image import Resampling

from ocm_core.datasets.base import ArchivedData, Split, image_split
from ocm_core.io.archives import AGAIN, Archive, Located
from ocm_core.io.fetch import google_drive
from ocm_core.io.image_files import SelectedFiles, zip_files
from ocm_core.io.reading import reading

COLUMN, ROW, HALF = 89, 121, 64
SIZE = (178, 218)  # of the aligned images: width, height
PARTITIONS = {"train": "0", "test": "2"}

_archive = partial(
    Archive,
    kind="celeba64",
    page="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    terms="non-commercial research only",
)
ARCHIVES = {  # bytes and sha256 in tensorflow/datasets, url_checksums
    "images": _archive(
        file="img_align_celeba.zip",
        url=google_drive("0B7EVK8r0v71pZjFTYXZWM3FlRnM"),
        bytes=1443490838,
        sha256="46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
    ),
    "partition": _archive(
        file="list_eval_partition.txt",
        url=google_drive("0B7EVK8r0v71pY0NSMzRuSXJEVkk"),
        bytes=2836386,
        sha256="fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
    ),
}


class Celeba64Data(ArchivedData):
    """Aligned faces without labels."""

    shape: ClassVar[tuple[int, ...]] = (3, 64, 64)
    classes: ClassVar[int] = 0
    items: ClassVar[Mapping[str, int]] = {"train": 162_770, "test": 19_962}
    kind: Literal["celeba64"]

    def read(self, files: Mapping[str, Located]) -> tuple[dict[str, Split], dict[str, Any]]:
        images, partition = zip_files(files["images"].path), files["partition"].path
        with reading(partition, "lines of a file name and 0, 1 or 2", AGAIN):
            parts = dict(line.split() for line in partition.read_text().splitlines())
            if not parts or not set(parts.values()) <= {"0", "1", "2"}:
                raise ValueError(f"{len(parts)} lines")
        splits: dict[str, Split] = {}
        for split, wanted in PARTITIONS.items():
            names = [f"img_align_celeba/{name}" for name, part in parts.items() if part == wanted]
            chosen = SelectedFiles(images, names)
            splits[split] = image_split(chosen, crop, self.shape, size=SIZE)
        crop_text = "columns 25 to 152, rows 57 to 184; bilinear to 64×64"
        return splits, {"crop": crop_text, "partitions": PARTITIONS}


def crop(image: Image.Image) -> Image.Image:
    """Crop the face and halve it."""
    box = (COLUMN - HALF, ROW - HALF, COLUMN + HALF, ROW + HALF)
    return image.crop(box).resize((HALF, HALF), Resampling.BILINEAR)
