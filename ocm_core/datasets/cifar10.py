"""CIFAR10 in its binary version: records of a label and the red, green and blue planes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from ocm_core.datasets.interface import ArraySplit, DataSet
from ocm_core.errors import OcmError
from ocm_core.io.archives import Archive, locate
from ocm_core.io.tars import read_members
from ocm_core.schema.datasets import Cifar10Data

FILES = {
    "train": [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)],
    "test": ["cifar-10-batches-bin/test_batch.bin"],
}
ARCHIVES = {
    "batches": Archive(
        kind="cifar10",
        file="cifar-10-binary.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        terms="none stated; the authors ask to cite Krizhevsky (2009)",
        md5="c32a1d4ab5d03f1284b67883e8d87530",  # on the authors' page
        bytes=170052171,  # these two in tensorflow/datasets, url_checksums
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )
}


def open_data(data: Cifar10Data, archives: Path) -> DataSet:
    archive = locate(ARCHIVES["batches"], archives)
    contents = read_members(archive.path, [name for names in FILES.values() for name in names])
    records = {
        split: np.concatenate([_records(archive.path, name, contents[name]) for name in names])
        for split, names in FILES.items()
    }
    return DataSet(
        splits={split: _split(values, data.shape) for split, values in records.items()},
        levels=data.levels,
        provenance={"archives": {archive.path.name: archive.sha256}},
    )


def _records(path: Path, name: str, content: bytes) -> UInt8[ndarray, "n 3073"]:
    if not content or len(content) % 3073:
        raise OcmError(
            f"{path}: {name}: expected records of 3073 bytes, found {len(content)} bytes in all;"
            " check that it is the binary version"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, 3073)


def _split(records: UInt8[ndarray, "n 3073"], shape: tuple[int, ...]) -> ArraySplit:
    return ArraySplit(records[:, 1:].reshape(-1, *shape), records[:, 0].astype(np.int64))
