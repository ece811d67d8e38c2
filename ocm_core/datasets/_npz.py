"""Arrays of images in npz files inside zips: copied out once, then read through memory maps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import numpy as np
from numpy import ndarray

from ocm_core.datasets._joined import JoinedSplit
from ocm_core.errors import OcmError
from ocm_core.io.archives import Located
from ocm_core.io.packed import no_member, refuse_bomb, unpacked, whole
from ocm_core.io.reading import reading
from ocm_core.io.zips import copy_out, open_zip

DATA, LABELS = "data.npy", "labels.npy"
REMEDY = "check that the archive is the published one"


def open_arrays(archives: Sequence[Located], shape: tuple[int, ...], classes: int) -> JoinedSplit:
    """Flat images with labels from 1 on, in all the archives."""
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
            _check(folder, f"{path}: {name}", int(np.prod(shape)), classes)


def _check(folder: Path, where: str, width: int, classes: int) -> None:
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
    array: ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    return array


def _in_order(folder: Path) -> list[Path]:
    """train_data_batch_2 before train_data_batch_10."""
    return sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))
