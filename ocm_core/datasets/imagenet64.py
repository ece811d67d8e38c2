"""ImageNet at 64×64, in two releases of different images: PNG files in a tar, or arrays in zips.

`png` is the older one (van den Oord et al., 2016), without labels: the published network was
trained on it and the likelihoods of the covariance papers were measured on it. `npz` is that of
Chrabaszcz et al. (2017), with labels in an order of its own. Its arrays lie in npz files inside
zips: they are copied out once, and then read through memory maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from zipfile import ZipFile

from ocm_core.datasets.archived import ArchivedData, file_checksums
from ocm_core.datasets.base import DataSet, JoinedSplit, Split, Splits
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, Located, unpacked
from ocm_core.io.members import (
    IndexedMembers,
    copy_out,
    no_member,
    open_zip,
    refuse_bomb,
    tar_index,
    whole,
)
from ocm_core.io.reading import reading

if TYPE_CHECKING:
    from numpy import ndarray

DATA, LABELS = "data.npy", "labels.npy"
REMEDY = "check that the archive is the published one"
ITEMS = {
    "png": {"train": 1_281_149, "test": 49_999},
    "npz": {"train": 1_281_167, "test": 50_000},
}

_TERMS = "non-commercial research and education only"
_PNG: dict[str, Any] = {
    "kind": "imagenet64",
    "page": "https://academictorrents.com/details/96816a530ee002254d29bf7a61c0c158d3dedc3b",
    "terms": f"{_TERMS}; image-net.org/small, where it was published, has it no more",
}
_NPZ: dict[str, Any] = {
    "kind": "imagenet64",
    "page": "https://image-net.org/download-images.php (sign in, then Downsampled image data)",
    "terms": _TERMS,
}
ARCHIVES = {  # bytes and sha256 in tensorflow/datasets, url_checksums
    "png/train": Archive(
        **_PNG,
        file="train_64x64.tar",
        bytes=12112588800,
        sha256="e2a2c1947a748d0d256e98e6d82800d855441dc9e4de2e71a773f1324c4524d7",
    ),
    "png/test": Archive(
        **_PNG,
        file="valid_64x64.tar",
        bytes=477255680,
        sha256="eeac03ec4f585baf871d2b4cb9c974bfe345e74878a74e5820fe6eb1041629cd",
    ),
    "npz/train/1": Archive(
        **_NPZ,
        file="Imagenet64_train_part1_npz.zip",
        bytes=6783426789,
        sha256="9422dc1dc5d092e9814a70a1cb7fc74880d2db5d88a0cb8a34ee363b12bde3f1",
    ),
    "npz/train/2": Archive(
        **_NPZ,
        file="Imagenet64_train_part2_npz.zip",
        bytes=6780506068,
        sha256="9fafc115afb7e6c301e66dc16b2d737152b427bd5dab26e1293487a6819c7f30",
    ),
    "npz/test": Archive(
        **_NPZ,
        file="Imagenet64_val_npz.zip",
        bytes=529522927,
        sha256="e1e75133158a1924135a9c6f97a80d2d237b158945e0b34074e58e6c8430eeb8",
    ),
}


class Imagenet64Data(ArchivedData):
    """`png` is the set of van den Oord et al., `npz` that of Chrabaszcz et al., with labels.

    They are different images. The published network and likelihoods go with `png`.
    """

    shape: ClassVar[tuple[int, ...]] = (3, 64, 64)
    kind: Literal["imagenet64"]
    release: Literal["png", "npz"] = "png"
    splits: Splits = ["train", "test"]

    @property
    def classes(self) -> int:
        return 1000 if self.release == "npz" else 0

    def open(self, archives: Path) -> DataSet:
        located = self.locate(archives)
        files = {
            split: [file for name, file in located.items() if self._is_of(name, split)]
            for split in self.splits
        }
        return DataSet(
            splits={split: self._open(parts) for split, parts in files.items()},
            levels=self.levels,
            provenance={"archives": file_checksums(located.values())},
        )

    def count_items(self) -> dict[str, int]:
        return {split: ITEMS[self.release][split] for split in self.splits}

    def needed_archives(self) -> dict[str, Archive]:
        return {
            name: archive
            for split in self.splits
            for name, archive in ARCHIVES.items()
            if self._is_of(name, split)
        }

    def _is_of(self, name: str, split: str) -> bool:
        return name.startswith(f"{self.release}/{split}")

    def _open(self, files: Sequence[Located]) -> Split:
        from ocm_core.datasets._images import ImageSplit

        if self.release == "npz":
            return _open_arrays(files, self.shape, self.classes)
        (file,) = files
        images = IndexedMembers(file.path, file.path, tar_index(file, ".png"))
        side = self.shape[-1]
        return ImageSplit(images, lambda image: image, side, size=(side, side))


PARAMS = Imagenet64Data


def _open_arrays(archives: Sequence[Located], shape: tuple[int, ...], classes: int) -> JoinedSplit:
    """Join the flat images of all the archives; their labels begin at 1."""
    import numpy as np

    folders = [
        folder
        for archive in archives
        for folder in _in_order(unpacked(archive, partial(_copy, archive.path, shape, classes)))
    ]
    labels = np.concatenate([_load(folder / LABELS) for folder in folders])
    batches = [_load(folder / DATA) for folder in folders]
    return JoinedSplit(batches, labels.astype(np.int64) - 1, shape)


def _copy(path: Path, shape: tuple[int, ...], classes: int, target: Path) -> None:
    with open_zip(path) as outer:
        names = [name for name in outer.namelist() if name.endswith(".npz")]
        if not names:
            raise no_member(path, "*.npz")
        total = 0
        for name in names:
            folder = target / PurePosixPath(name).stem
            folder.mkdir()
            with whole(path), outer.open(name) as file, ZipFile(file) as inner:
                for array in (DATA, LABELS):
                    if array not in inner.namelist():
                        raise no_member(path, f"{name}/{array}")
                    total += inner.getinfo(array).file_size
                    refuse_bomb(path, total)
                    copy_out(path, inner, array, folder / array)
            _check(folder, f"{path}: {name}", prod(shape), classes)


def _check(folder: Path, where: str, width: int, classes: int) -> None:
    import numpy as np

    with reading(where, "two plain arrays", REMEDY):
        data, labels = _load(folder / DATA), _load(folder / LABELS)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise OcmError(
            f"{where}: expected a list of whole numbers as labels, found {labels.dtype} and"
            f" {labels.shape}; {REMEDY}"
        )
    if data.dtype != np.uint8 or data.shape != (len(labels), width):
        raise OcmError(
            f"{where}: expected data of uint8 and shape {(len(labels), width)}, found {data.dtype}"
            f" and {data.shape}; {REMEDY}"
        )
    if not np.isin(labels, np.arange(1, classes + 1)).all():
        raise OcmError(f"{where}: expected labels from 1 to {classes}, found others; {REMEDY}")


def _load(file: Path) -> ndarray:
    import numpy as np

    array: ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    return array


def _in_order(folder: Path) -> list[Path]:
    """Sort the batches by number: train_data_batch_2 comes before train_data_batch_10."""
    return sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))
