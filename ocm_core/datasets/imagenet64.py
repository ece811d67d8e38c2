"""ImageNet at 64×64, in two releases of different images: PNG files in a tar, or arrays in zips.

`png` is the older one (van den Oord et al., 2016), without labels: the published network was
trained on it and the likelihoods of the covariance papers were measured on it. `npz` is that of
Chrabaszcz et al. (2017), with labels in an order of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ocm_core.datasets._images import ImageSplit
from ocm_core.datasets._npz import open_arrays
from ocm_core.datasets.interface import DataSet, Split
from ocm_core.io.archives import Archive, Located, locate
from ocm_core.io.image_index import IndexedImages
from ocm_core.io.tars import indexed
from ocm_core.schema.datasets import Imagenet64Data

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


def open_data(data: Imagenet64Data, archives: Path) -> DataSet:
    located = {
        split: [
            locate(archive, archives)
            for name, archive in ARCHIVES.items()
            if name.startswith(f"{data.release}/{split}")
        ]
        for split in data.splits
    }
    return DataSet(
        splits={split: _open(data, files) for split, files in located.items()},
        levels=data.levels,
        provenance={
            "archives": {
                file.path.name: file.sha256 for files in located.values() for file in files
            }
        },
    )


def _open(data: Imagenet64Data, files: list[Located]) -> Split:
    if data.release == "npz":
        return open_arrays(files, data.shape, data.classes)
    (file,) = files
    images = IndexedImages(file.path, file.path, indexed(file, ".png"))
    side = data.shape[-1]
    return ImageSplit(images, lambda image: image, side, size=(side, side))
