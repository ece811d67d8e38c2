"""LSUN Bedroom at 256×256: an LMDB of encoded images inside a zip, in the order of their keys.

The authors have scaled the shorter edge to 256, so that only the centre crop is left; another size
would be scaled by boxes first, as OpenAI's preparation does.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from PIL.Image import Resampling

from ocm_core.datasets.base import ArchivedData, Split, Splits, centre_crop, image_split
from ocm_core.io import archives
from ocm_core.io.archives import AGAIN, Archive, ByteRange, Located, indexed
from ocm_core.io.lmdb_file import lmdb_ranges

SIDE = 256
DATABASE = "data.mdb"
crop = partial(centre_crop, side=SIDE, resampling=Resampling.BOX)

_archive = partial(
    Archive,
    kind="lsun_bedroom",
    page="https://github.com/fyu/lsun",
    terms="none stated; the authors ask to cite Yu et al. (2015)",
)
ARCHIVES = {  # bytes and sha256 in tensorflow/datasets, url_checksums
    "train": _archive(
        file="bedroom_train_lmdb.zip",
        url="http://dl.yf.io/lsun/scenes/bedroom_train_lmdb.zip",
        bytes=45922737680,
        sha256="a15644c2e7153106867f0adb3491fc41224102d1f01b24494fb47d9f5d1f174e",
    ),
    "test": _archive(
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
    items: ClassVar[Mapping[str, int]] = {"train": 3_033_042, "test": 300}
    kind: Literal["lsun_bedroom"]
    splits: Splits = ["train"]

    def read(self, files: Mapping[str, Located]) -> tuple[dict[str, Split], dict[str, Any]]:
        splits: dict[str, Split] = {}
        for split, file in files.items():
            images = indexed(file, f"*/{DATABASE}", partial(_unpack, file.path), DATABASE)
            splits[split] = image_split(images, crop, self.shape)
        return splits, {"crop": "boxes to a shorter edge of 256, centre"}


def _unpack(path: Path, folder: Path) -> list[ByteRange]:
    with archives.open_zip(path) as opened:
        names = [name for name in opened.namelist() if name.endswith(f"/{DATABASE}")]
        if not names:
            raise archives.no_member(path, f"*/{DATABASE}")
        archives.copy_out(path, opened, names[0], folder / DATABASE)
    return lmdb_ranges(folder / DATABASE, f"{path}: {DATABASE}", AGAIN)
