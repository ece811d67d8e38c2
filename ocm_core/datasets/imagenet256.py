"""ImageNet (ILSVRC 2012) at 256×256, from the archives as published, cropped as ADM and DiT do.

The training archive is a tar of one tar per class and is never unpacked: an index of all JPEGs is
made once. Labels are the places of the WordNet names in sorted order, as DiT numbers its classes.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy import ndarray
from PIL import Image
from PIL.Image import Resampling
from scipy.io import loadmat

from ocm_core.datasets._images import ImageSplit, centre, shrink_to
from ocm_core.datasets._permutation import permutation, recorded
from ocm_core.datasets.interface import DataSet, Split
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, locate
from ocm_core.io.image_index import Index, IndexedImages
from ocm_core.io.reading import reading
from ocm_core.io.tars import indexed, read_members
from ocm_core.schema.datasets import Imagenet256Data

SIDE = 256
META = "ILSVRC2012_devkit_t12/data/meta.mat"
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
REMEDY = "check that both archives are those of 2012"

_PUBLISHED: dict[str, Any] = {
    "kind": "imagenet256",
    "page": "https://image-net.org/challenges/LSVRC/2012/2012-downloads.php (sign in)",
    "terms": "non-commercial research and education only",
}
ARCHIVES = {  # md5 on the authors' page, bytes and sha256 in tensorflow/datasets, url_checksums
    "train": Archive(
        **_PUBLISHED,
        file="ILSVRC2012_img_train.tar",
        md5="1d675b47d978889d74fa0da5fadfb00e",
        bytes=147897477120,
        sha256="b08200a27a8e34218a0e58fde36b0fe8f73bc377f4acea2d91602057c3ca45bb",
    ),
    "test": Archive(
        **_PUBLISHED,
        file="ILSVRC2012_img_val.tar",
        md5="29b22e2961454d5413ddabcf34fc5622",
        bytes=6744924160,
        sha256="c7e06a6c0baccf06d8dbeb6577d71efff84673a5dbdd50633ab44f8ea0456ae0",
    ),
    "devkit": Archive(
        **_PUBLISHED,
        file="ILSVRC2012_devkit_t12.tar.gz",
        md5="fa75699e90414af021442c21a62c3abf",
    ),
}


def open_data(data: Imagenet256Data, archives: Path) -> DataSet:
    names = [*data.splits, *["devkit"] * ("test" in data.splits)]
    located = {name: locate(ARCHIVES[name], archives) for name in names}
    labels: dict[str, Callable[[Index], Int64[ndarray, " image"]]] = {
        "train": _labels_of_folders,
        "test": lambda index: _labels_of_devkit(located["devkit"].path, len(index)),
    }
    splits: dict[str, Split] = {}
    orders = {}
    for number, split in enumerate(data.splits):
        file = located[split].path
        index = indexed(located[split], ".JPEG")
        order = permutation(len(index), data.seed, number)
        images = IndexedImages(file, file, index[order])
        splits[split] = ImageSplit(images, crop, SIDE, labels[split](index)[order])
        orders[split] = recorded(order, data.seed)
    return DataSet(
        splits=splits,
        levels=data.levels,
        provenance={
            "archives": {file.path.name: file.sha256 for file in located.values()},
            "crop": "halved by boxes while both edges are 512 or more, bicubic to 256, centre",
            "permutations": orders,
        },
    )


def crop(image: Image.Image) -> Image.Image:
    while min(image.size) >= 2 * SIDE:
        image = image.resize((image.width // 2, image.height // 2), Resampling.BOX)
    return centre(shrink_to(image, SIDE, Resampling.BICUBIC), SIDE)


def _labels_of_folders(index: Index) -> Int64[ndarray, " image"]:
    folders = [name.split(b"/")[0] for name in index["name"].tolist()]
    return np.unique(folders, return_inverse=True)[1].astype(np.int64)


def _labels_of_devkit(path: Path, images: int) -> Int64[ndarray, " image"]:
    """Of the validation images in the order of their names, by the numbers of the challenge."""
    content = read_members(path, [META, TRUTH])
    with reading(path, f"synsets in {META} and their numbers in {TRUTH}", REMEDY):
        synsets = loadmat(BytesIO(content[META]), squeeze_me=True)["synsets"]
        leaves = synsets[synsets["num_children"] == 0]
        names = dict(zip(leaves["ILSVRC2012_ID"].tolist(), leaves["WNID"].tolist(), strict=True))
        places = {name: place for place, name in enumerate(sorted(names.values()))}
        numbers = [int(line) for line in content[TRUTH].split()]
        labels = np.array([places[names[number]] for number in numbers], dtype=np.int64)
    if len(labels) != images:
        raise OcmError(
            f"{path}: {TRUTH}: expected a line for each of {images} images, found {len(labels)};"
            f" {REMEDY}"
        )
    return labels
