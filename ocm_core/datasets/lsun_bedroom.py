"""LSUN Bedroom at 256×256: an LMDB of encoded images inside a zip, in the order of their keys.

The authors have scaled the shorter edge to 256, so that only the centre crop is left; another size
would be scaled by boxes first, as OpenAI's preparation does. Testing is on their validation set.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ocm_core.datasets.archived import ArchivedData, file_checksums
from ocm_core.datasets.base import DataSet, Splits
from ocm_core.io.archives import Archive, Located, unpacked
from ocm_core.io.lmdb_file import lmdb_ranges
from ocm_core.io.members import (
    IndexedMembers,
    copy_out,
    load_index,
    no_member,
    open_zip,
    save_index,
)

if TYPE_CHECKING:
    from PIL import Image

SIDE = 256
DATABASE = "data.mdb"
ITEMS = {"train": 3_033_042, "test": 300}

_PUBLISHED: dict[str, Any] = {
    "kind": "lsun_bedroom",
    "page": "https://github.com/fyu/lsun",
    "terms": "none stated; the authors ask to cite Yu et al. (2015)",
}
ARCHIVES = {  # bytes and sha256 in tensorflow/datasets, url_checksums
    "train": Archive(
        **_PUBLISHED,
        file="bedroom_train_lmdb.zip",
        url="http://dl.yf.io/lsun/scenes/bedroom_train_lmdb.zip",
        bytes=45922737680,
        sha256="a15644c2e7153106867f0adb3491fc41224102d1f01b24494fb47d9f5d1f174e",
    ),
    "test": Archive(
        **_PUBLISHED,
        file="bedroom_val_lmdb.zip",
        url="http://dl.yf.io/lsun/scenes/bedroom_val_lmdb.zip",
        bytes=4670661,
        sha256="5d022e781b241c25ec2e1f1f769afcdb8091d7fd58362667aec03137b8114b12",
    ),
}


class LsunBedroomData(ArchivedData):
    """Bedrooms without labels."""

    shape: ClassVar[tuple[int, ...]] = (3, SIDE, SIDE)
    classes: ClassVar[int] = 0
    kind: Literal["lsun_bedroom"]
    splits: Splits = ["train"]

    def open(self, archives: Path) -> DataSet:
        from ocm_core.datasets._images import ImageSplit

        located = self.locate(archives)
        return DataSet(
            splits={
                split: ImageSplit(_images(file), crop, SIDE) for split, file in located.items()
            },
            levels=self.levels,
            provenance={
                "archives": file_checksums(located.values()),
                "crop": "boxes to a shorter edge of 256, centre",
            },
        )

    def count_items(self) -> dict[str, int]:
        return {split: ITEMS[split] for split in self.splits}

    def needed_archives(self) -> dict[str, Archive]:
        return {split: ARCHIVES[split] for split in self.splits}


PARAMS = LsunBedroomData


def crop(image: Image.Image) -> Image.Image:
    """Scale the shorter edge by boxes and crop the centre."""
    from PIL.Image import Resampling

    from ocm_core.datasets._images import centre, shrink_to

    return centre(shrink_to(image, SIDE, Resampling.BOX), SIDE)


def _images(archive: Located) -> IndexedMembers:
    folder = unpacked(archive, partial(_copy, archive.path))
    return IndexedMembers(archive.path, folder / DATABASE, load_index(folder))


def _copy(path: Path, folder: Path) -> None:
    with open_zip(path) as opened:
        names = [name for name in opened.namelist() if name.endswith(f"/{DATABASE}")]
        if not names:
            raise no_member(path, f"*/{DATABASE}")
        copy_out(path, opened, names[0], folder / DATABASE)
    ranges = lmdb_ranges(
        folder / DATABASE, f"{path}: {DATABASE}", "remove the archive and fetch it again"
    )
    if not ranges:
        raise no_member(path, f"*/{DATABASE} with images")
    save_index(folder, ranges)
