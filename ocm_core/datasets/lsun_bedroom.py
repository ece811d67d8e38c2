"""LSUN Bedroom at 256×256: an LMDB of encoded images inside a zip, in the order of their keys.

The authors have scaled the shorter edge to 256, so that what is left is the centre crop; another
size would be scaled by boxes first, as OpenAI's preparation has it. Testing is on their validation
set.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.Image import Resampling

from ocm_core.datasets._images import ImageSplit, centre, shrink_to
from ocm_core.datasets.interface import DataSet
from ocm_core.io.archives import Archive, Located, locate
from ocm_core.io.image_index import IndexedImages, load_index, save_index
from ocm_core.io.lmdb_index import lmdb_entries
from ocm_core.io.packed import no_member, unpacked
from ocm_core.io.zips import copy_out, open_zip
from ocm_core.schema.datasets import LsunBedroomData

SIDE = 256
DATABASE = "data.mdb"

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


def open_data(data: LsunBedroomData, archives: Path) -> DataSet:
    located = {split: locate(ARCHIVES[split], archives) for split in data.splits}
    return DataSet(
        splits={split: ImageSplit(_images(file), crop, SIDE) for split, file in located.items()},
        levels=data.levels,
        provenance={
            "archives": {file.path.name: file.sha256 for file in located.values()},
            "crop": "boxes to a shorter edge of 256, centre",
        },
    )


def crop(image: Image.Image) -> Image.Image:
    return centre(shrink_to(image, SIDE, Resampling.BOX), SIDE)


def _images(archive: Located) -> IndexedImages:
    folder = unpacked(archive, partial(_copy, archive.path))
    return IndexedImages(archive.path, folder / DATABASE, load_index(folder))


def _copy(path: Path, folder: Path) -> None:
    with open_zip(path) as opened:
        names = [name for name in opened.namelist() if name.endswith(f"/{DATABASE}")]
        if not names:
            raise no_member(path, f"*/{DATABASE}")
        copy_out(path, opened, names[0], folder / DATABASE)
    entries = lmdb_entries(
        folder / DATABASE, f"{path}: {DATABASE}", "remove the archive and fetch it again"
    )
    if not entries:
        raise no_member(path, f"*/{DATABASE} with images")
    save_index(folder, entries)
