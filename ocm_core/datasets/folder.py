"""Images of one's own, from a folder, a zip or a tar: looked at once, cropped when they are read.

A recorded permutation of the files, in the order of their names, divides them. Photographs are
turned as their camera says; transparency is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from PIL.Image import Resampling

from ocm_core.datasets._annotations import captions_as_classes, classes_of, read_column, sub_folders
from ocm_core.datasets._checked import CheckedFiles, CheckedImage, checked, digest, duplicates
from ocm_core.datasets._images import ImageSplit, centre, shrink_to
from ocm_core.datasets._permutation import permutation, recorded
from ocm_core.datasets.interface import Captions, DataSet, ItemLabels
from ocm_core.errors import OcmError
from ocm_core.io.digests import sha256_of
from ocm_core.io.image_files import EXPECTED, ImageFiles, images_among, open_image_files
from ocm_core.schema.datasets import FolderData
from ocm_core.text import plural

SHOWN = 20  # files in one message
FITS = {
    "center_crop": "bicubic to the shorter edge, centre",
    "resize": "bicubic, stretched",
    "none": "as they are",
}
LOG = logging.getLogger("ocm")


def open_data(data: FolderData, archives: Path) -> DataSet:
    path = Path(data.path).expanduser()
    files = open_image_files(path)
    entries, others = images_among(files.entries)
    if not entries:
        raise OcmError(f"{path}: {EXPECTED}, found {_said(others) or 'nothing'}")
    found = checked(files, entries, archives / data.kind)
    images = _readable(data, files, list(found.values()))
    _refuse_sizes(data, files, images)
    names = [image.name for image in images]
    parts = _divided(data, len(names))
    captions = _captions(data, path, names)
    labels = _labels(data, path, names, captions)
    return DataSet(
        splits={
            split: ImageSplit(
                CheckedFiles(files, [names[row] for row in rows], found),
                _preparing(data),
                data.side,
                None if labels is None else labels[rows],
                channels=data.channels,
                captions=captions and [captions[row] for row in rows],
            )
            for split, rows in parts.items()
        },
        levels=data.levels,
        provenance={
            "archives": {"images": digest(images)} | _annotations(data),
            "crop": f"{FITS[data.fit]}, to {data.side}×{data.side}",
            "permutation": recorded(np.concatenate(list(parts.values())), data.seed),
            "counts": {
                "images": len(images),
                "unreadable": len(found) - len(images),
                "enlarged": sum(min(i.width, i.height) < data.side for i in images),
                "duplicates": duplicates(images),
                "others": others,
            },
        },
    )


def _readable(
    data: FolderData, files: ImageFiles, images: Sequence[CheckedImage]
) -> list[CheckedImage]:
    bad = [image for image in images if image.problem is not None]
    lines = [f"{files.where(image.name)}: {image.problem}" for image in bad]
    if lines and not data.skip_unreadable:
        more = [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
        said = f"{plural(len(bad), 'file')} of {len(images)} cannot be read"
        remedy = "mend or remove them, or set data.skip_unreadable=true to go on without them"
        raise OcmError("\n".join([*lines[:SHOWN], *more, f"{files.path}: {said}; {remedy}"]))
    for line in lines:
        LOG.warning("left out: %s", line)
    return [image for image in images if image.problem is None]


def _refuse_sizes(data: FolderData, files: ImageFiles, images: Sequence[CheckedImage]) -> None:
    wanted = (data.side, data.side)
    others = [image for image in images if (image.width, image.height) != wanted]
    if others and data.fit == "none":
        first = others[0]
        raise OcmError(
            f"{files.where(first.name)}: {first.width}×{first.height} pixels, as {len(others)} of"
            f" {len(images)} images are not {data.side}×{data.side}, which data.fit: none expects;"
            " use center_crop or resize, or another data.side"
        )


def _divided(data: FolderData, count: int) -> dict[str, np.ndarray]:
    order, train = permutation(count, data.seed), count - ceil(data.test_share * count)
    if train < 1:
        raise OcmError(
            f"{data.path}: {plural(count, 'image')} that can be read, of which data.test_share ="
            f" {data.test_share} leaves none for training; add images, or lower it"
        )
    return {"train": order[:train], "test": order[train:]}


def _labels(data: FolderData, path: Path, names: Sequence[str], captions: Captions) -> ItemLabels:
    if data.labels == "folders":
        return classes_of(sub_folders(names, path), names, data.classes, path)
    if data.labels == "captions" and captions is not None:
        return captions_as_classes(captions, data.classes, data.captions_csv)
    if data.labels_csv is not None:
        file = Path(data.labels_csv).expanduser()
        return classes_of(read_column(file, "label", names, path), names, data.classes, file)
    return None


def _captions(data: FolderData, path: Path, names: Sequence[str]) -> Captions:
    if data.captions_csv is None:
        return None
    given = read_column(Path(data.captions_csv).expanduser(), "caption", names, path)
    return [given[name] for name in names]


def _annotations(data: FolderData) -> dict[str, str]:
    files = {"labels": data.labels_csv, "captions": data.captions_csv}
    return {name: sha256_of(Path(file).expanduser()) for name, file in files.items() if file}


def _preparing(data: FolderData) -> Callable[[Image.Image], Image.Image]:
    return partial(prepare, side=data.side, fit=data.fit, mode="L" if data.channels == 1 else "RGB")


def prepare(image: Image.Image, side: int, fit: str, mode: str) -> Image.Image:
    image = ImageOps.exif_transpose(image)
    if fit == "center_crop":
        image = centre(shrink_to(image, side, Resampling.BICUBIC), side)
    elif fit == "resize":
        image = image.resize((side, side), Resampling.BICUBIC)
    return image.convert(mode)


def _said(others: dict[str, int]) -> str:
    return ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in others.items())
