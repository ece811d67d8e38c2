"""ImageNet (ILSVRC 2012) at 256×256, from the archives as published, cropped as ADM and DiT do.

The training archive, a tar of one tar per class, is never unpacked but indexed, and read in a
permutation. Labels are the places of the WordNet names in sorted order, as DiT has them.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int64
from numpy import ndarray
from PIL import Image
from PIL.Image import Resampling

from ocm_core.datasets import base
from ocm_core.datasets.base import ArchivedData, Split, Splits
from ocm_core.io.archives import Archive, Located, each_member, tar_index
from ocm_core.io.reading import reading
from ocm_core.schema.block import Seed

SIDE = 256
META = "ILSVRC2012_devkit_t12/data/meta.mat"
TRUTH = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
REMEDY = "check that both archives are those of 2012"

_archive = partial(
    Archive,
    kind="imagenet256",
    page="https://image-net.org/challenges/LSVRC/2012/2012-downloads.php (sign in)",
    terms="non-commercial research and education only",
)
ARCHIVES = {  # md5 on the authors' page, bytes and sha256 in tensorflow/datasets, url_checksums
    "train": _archive(
        file="ILSVRC2012_img_train.tar",
        bytes=147897477120,
        sha256="b08200a27a8e34218a0e58fde36b0fe8f73bc377f4acea2d91602057c3ca45bb",
    ),
    "test": _archive(
        file="ILSVRC2012_img_val.tar",
        bytes=6744924160,
        sha256="c7e06a6c0baccf06d8dbeb6577d71efff84673a5dbdd50633ab44f8ea0456ae0",
    ),
    "test/devkit": _archive(
        file="ILSVRC2012_devkit_t12.tar.gz", md5="fa75699e90414af021442c21a62c3abf"
    ),
}


class Imagenet256Data(ArchivedData):
    """ImageNet; `seed` makes the permutation in which each split is read."""

    shape: ClassVar[tuple[int, ...]] = (3, SIDE, SIDE)
    classes: ClassVar[int] = 1000
    items: ClassVar[Mapping[str, int]] = {"train": 1_281_167, "test": 50_000}
    kind: Literal["imagenet256"]
    splits: Splits = ["train"]
    seed: Seed = 0

    def read(self, files: Mapping[str, Located]) -> tuple[dict[str, Split], dict[str, Any]]:
        splits: dict[str, Split] = {}
        orders = {}
        for number, split in enumerate(self.splits):
            images = tar_index(files[split], ".JPEG")
            order = base.permutation(len(images), self.seed, number)
            if split == "train":
                folders = [name.split(b"/")[0] for name in images.index["name"].tolist()]
                labels = np.unique(folders, return_inverse=True)[1].astype(np.int64)
            else:
                labels = _labels_of_devkit(files["test/devkit"].path, len(images))
            images = replace(images, index=images.index[order])
            splits[split] = base.image_split(images, crop, self.shape, labels[order])
            orders[split] = base.recorded(order, self.seed)
        steps = "halved by boxes while both edges are 512 or more, bicubic to 256, centre"
        return splits, {"crop": steps, "permutations": orders}


def crop(image: Image.Image) -> Image.Image:
    """Halve by boxes while it is large, scale the shorter edge, crop the centre."""
    while min(image.size) >= 2 * SIDE:
        image = image.resize((image.width // 2, image.height // 2), Resampling.BOX)
    return base.centre_crop(image, SIDE, Resampling.BICUBIC)


def _labels_of_devkit(path: Path, images: int) -> Int64[ndarray, " image"]:
    """Return the labels of the validation images, in the order of their names."""
    from scipy.io import loadmat

    content = dict(each_member(path, [META, TRUTH]))
    expected = f"synsets in {META} and the number of each of {images} images in {TRUTH}"
    with reading(path, expected, REMEDY):
        synsets = loadmat(BytesIO(content[META]), squeeze_me=True)["synsets"]
        leaves = synsets[synsets["num_children"] == 0]
        names = dict(zip(leaves["ILSVRC2012_ID"].tolist(), leaves["WNID"].tolist(), strict=True))
        places = {name: place for place, name in enumerate(sorted(names.values()))}
        numbers = [int(line) for line in content[TRUTH].split()]
        if len(numbers) != images:
            raise ValueError(f"{len(numbers)} numbers")
        return np.array([places[names[number]] for number in numbers], dtype=np.int64)
