"""ImageNet at 64×64, in two releases of different images: PNG files in a tar, or arrays in zips.

`png` (van den Oord et al., 2016), without labels, is the one of the published network and of the
papers' likelihoods. `npz` (Chrabaszcz et al., 2017) has labels, in an order of its own.
"""

from collections.abc import Mapping
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal
from zipfile import ZipFile

import numpy as np

from ocm_core.datasets.base import ArchivedData, Split, Splits, image_split, joined_split
from ocm_core.io import archives
from ocm_core.io.archives import Archive, Located, no_member
from ocm_core.io.reading import reading

SHAPE, CLASSES = (3, 64, 64), 1000
DATA, LABELS = "data.npy", "labels.npy"
_load = partial(np.load, mmap_mode="r", allow_pickle=False)
ITEMS = {"png": {"train": 1_281_149, "test": 49_999}, "npz": {"train": 1_281_167, "test": 50_000}}

_TERMS = "non-commercial research and education only"
_png = partial(
    Archive,
    kind="imagenet64",
    page="https://academictorrents.com/details/96816a530ee002254d29bf7a61c0c158d3dedc3b",
    terms=f"{_TERMS}; image-net.org/small, where it was published, has it no more",
)
_npz = partial(
    Archive,
    kind="imagenet64",
    page="https://image-net.org/download-images.php (sign in, then Downsampled image data)",
    terms=_TERMS,
)
ARCHIVES = {  # bytes and sha256 in tensorflow/datasets, url_checksums
    "train/png": _png(
        file="train_64x64.tar",
        bytes=12112588800,
        sha256="e2a2c1947a748d0d256e98e6d82800d855441dc9e4de2e71a773f1324c4524d7",
    ),
    "test/png": _png(
        file="valid_64x64.tar",
        bytes=477255680,
        sha256="eeac03ec4f585baf871d2b4cb9c974bfe345e74878a74e5820fe6eb1041629cd",
    ),
    "train/npz/1": _npz(
        file="Imagenet64_train_part1_npz.zip",
        bytes=6783426789,
        sha256="9422dc1dc5d092e9814a70a1cb7fc74880d2db5d88a0cb8a34ee363b12bde3f1",
    ),
    "train/npz/2": _npz(
        file="Imagenet64_train_part2_npz.zip",
        bytes=6780506068,
        sha256="9fafc115afb7e6c301e66dc16b2d737152b427bd5dab26e1293487a6819c7f30",
    ),
    "test/npz": _npz(
        file="Imagenet64_val_npz.zip",
        bytes=529522927,
        sha256="e1e75133158a1924135a9c6f97a80d2d237b158945e0b34074e58e6c8430eeb8",
    ),
}


class Imagenet64Data(ArchivedData):
    """`png` is the set of van den Oord et al., `npz` that of Chrabaszcz et al., with labels."""

    shape: ClassVar[tuple[int, ...]] = SHAPE
    kind: Literal["imagenet64"]
    release: Literal["png", "npz"] = "png"
    splits: Splits = ["train", "test"]

    @property
    def classes(self) -> int:
        return CLASSES if self.release == "npz" else 0

    def count_items(self) -> dict[str, int]:
        return {split: ITEMS[self.release][split] for split in self.splits}

    def needed_archives(self) -> dict[str, Archive]:
        declared = super().needed_archives()
        return {name: archive for name, archive in declared.items() if self.release in name}

    def read(self, files: Mapping[str, Located]) -> tuple[dict[str, Split], dict[str, Any]]:
        splits: dict[str, Split] = {}
        for split in self.splits:
            parts = [file for name, file in files.items() if name.startswith(split)]
            if self.release == "png":
                images = archives.tar_index(parts[0], ".png")
                splits[split] = image_split(images, lambda image: image, SHAPE, size=SHAPE[1:])
                continue
            folders: list[Path] = []
            for part in parts:
                found = archives.unpacked(part, partial(_unpack, part.path)).iterdir()
                folders += sorted(found, key=lambda path: (len(path.name), path.name))  # by number
            labels = np.concatenate([_load(folder / LABELS) for folder in folders])
            batches = [_load(folder / DATA) for folder in folders]
            numbers = labels.astype(np.int64) - 1  # theirs begin at 1
            splits[split] = joined_split(batches, numbers, SHAPE)
        return splits, {}


def _unpack(path: Path, target: Path) -> None:
    width = prod(SHAPE)
    expected = f"plain arrays: images of {width} uint8, and as many labels from 1 to {CLASSES}"
    with archives.open_zip(path) as outer:
        names = [name for name in outer.namelist() if name.endswith(".npz")]
        if not names:
            raise no_member(path, "*.npz")
        total = 0
        for name in names:
            folder = target / PurePosixPath(name).stem
            folder.mkdir()
            with archives.whole(path):
                inner = ZipFile(outer.open(name))
            for array in (DATA, LABELS):
                if array not in inner.namelist():
                    raise no_member(path, f"{name}/{array}")
                total += inner.getinfo(array).file_size
                archives.refuse_bomb(path, total)
                archives.copy_out(path, inner, array, folder / array)
            where = f"{path}: {name}"
            with reading(where, expected, "check that the archive is the published one"):
                data, labels = _load(folder / DATA), _load(folder / LABELS)
                if data.dtype != np.uint8 or data.shape != (len(data), width):
                    raise ValueError(f"{data.dtype} of shape {data.shape}")
                if labels.dtype.kind not in "iu" or labels.shape != (len(data),):
                    raise ValueError(f"labels {labels.dtype} of shape {labels.shape}")
                if not np.isin(labels, np.arange(1, CLASSES + 1)).all():
                    raise ValueError(f"labels from {labels.min()} to {labels.max()}")
