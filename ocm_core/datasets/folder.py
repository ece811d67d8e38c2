"""A user's own images, from a folder, a zip or a tar: checked once, cropped when they are read."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from os.path import commonpath
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Literal

import numpy as np
from jaxtyping import Int64
from numpy import ndarray
from PIL import Image, ImageOps
from PIL.Image import Resampling
from pydantic import Field, model_validator

from ocm_core.datasets import base
from ocm_core.datasets.base import Captions, DataParams, DataSet, ItemLabels, Share, Split
from ocm_core.errors import OcmError
from ocm_core.io import image_files
from ocm_core.io.checksums import sha256_of
from ocm_core.io.image_files import CheckedImage, ImageFiles
from ocm_core.io.reading import reading
from ocm_core.schema.block import Seed
from ocm_core.text import plural, some

File = Annotated[str, Field(min_length=1, max_length=4096)]

MOST_BYTES = 1 << 30  # of a table
SHOWN = 10  # names in one message
FITS = {
    "center_crop": "bicubic to the shorter edge, centre",
    "resize": "bicubic, stretched",
    "none": "as they are",
}
LOG = logging.getLogger("ocm")


class FolderData(DataParams):
    """Images in a folder, or in a zip or a plain tar; sub-folders count.

    `fit` makes them `side` × `side`: `center_crop` scales the shorter edge and cuts the centre out,
    `resize` stretches, `none` expects that size. With `labels: csv`, `labels_csv` has the columns
    file and label; `captions_csv` has file and caption, and with `labels: captions` each different
    caption is a class. Paths are relative to the project. A recorded permutation of the files, in
    the order of their names, divides them. Photographs are turned as their camera recorded.
    """

    archived: ClassVar[bool] = True  # images are checked before anything else runs
    kind: Literal["folder"]
    path: File
    side: Annotated[int, Field(ge=1, le=2**12)]
    channels: Literal[1, 3] = 3
    fit: Literal["center_crop", "resize", "none"] = "center_crop"
    labels: Literal["none", "folders", "csv", "captions"] = "none"
    classes: Annotated[int, Field(ge=0, le=10**6)] = 0
    labels_csv: File | None = None
    captions_csv: File | None = None
    test_share: Share = 0.1
    seed: Seed = 0
    skip_unreadable: bool = False

    @model_validator(mode="after")
    def _labels_come_from_somewhere(self) -> FolderData:
        given = f"and data.labels is {self.labels!r}"
        if (self.labels == "none") != (self.classes == 0):
            raise ValueError(f"data.classes: {self.classes}, {given}; 0 is for no labels only")
        if (self.labels == "csv") != (self.labels_csv is not None):
            raise ValueError(f"data.labels_csv: {self.labels_csv!r}, {given}; they need each other")
        if self.labels == "captions" and self.captions_csv is None:
            raise ValueError(f"data.captions_csv: null, {given}; name a file")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.side, self.side)

    def user_files(self) -> dict[str, Path]:
        keys = ("path", "labels_csv", "captions_csv")
        return {key: Path(file).expanduser() for key in keys if (file := getattr(self, key))}

    def count_items(self) -> dict[str, int]:
        """Count the image files as if every one could be read."""
        files = image_files.open_image_files(self.user_files()["path"])
        images, _ = image_files.images_among(files.entries)
        return base.divided_sizes(len(images), self.test_share)

    def open(self, archives: Path) -> DataSet:
        path = self.user_files()["path"]
        files = image_files.open_image_files(path)
        entries, others = image_files.images_among(files.entries)
        if not entries:
            found = ", ".join(f"{n} {suffix or 'without a suffix'}" for suffix, n in others.items())
            raise OcmError(f"{path}: {image_files.EXPECTED}, found {found or 'nothing'}")
        everything = image_files.checked(files, entries, archives / self.kind)
        images = self._usable(files, list(everything.values()))
        names = [image.name for image in images]
        order = base.permutation(len(names), self.seed)
        train = base.divided_sizes(len(names), self.test_share)["train"]
        tables = {key: file for key, file in self.user_files().items() if key != "path"}
        captions: Captions = None
        if table := tables.get("captions_csv"):
            captions = list(read_column(table, "caption", names, path).values())
        labels = self._labels(names, captions)
        fitted = partial(prepare, side=self.side, fit=self.fit, channels=self.channels)
        splits: dict[str, Split] = {}
        for split, rows in {"train": order[:train], "test": order[train:]}.items():
            sha256 = [images[row].sha256 for row in rows]
            chosen = image_files.SelectedFiles(files, [names[row] for row in rows], sha256)
            numbers = None if labels is None else labels[rows]
            said = captions and [captions[row] for row in rows]
            splits[split] = base.image_split(chosen, fitted, self.shape, numbers, said)
        sums = {key.removesuffix("_csv"): sha256_of(file) for key, file in tables.items()}
        counts = {
            "images": len(images),
            "unreadable": len(everything) - len(images),
            "enlarged": sum(min(i.width, i.height) < self.side for i in images),
            "duplicates": len(images) - len({image.sha256 for image in images}),
            "others": others,
        }
        provenance = {
            "archives": {"images": image_files.checksum(images)} | sums,
            "crop": f"{FITS[self.fit]}, to {self.side}×{self.side}",
            "permutation": base.recorded(order, self.seed),
            "counts": counts,
        }
        return DataSet(splits, self.levels, provenance)

    def _usable(self, files: ImageFiles, images: Sequence[CheckedImage]) -> list[CheckedImage]:
        """Return the images that can be read; refuse others, and sizes that do not fit."""
        readable = [image for image in images if image.problem is None]
        bad = [f"{files.where(i.name)}: {i.problem}" for i in images if i.problem is not None]
        if bad and not self.skip_unreadable:
            more = [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
            summary = f"{plural(len(bad), 'file')} of {len(images)} cannot be read"
            remedy = "mend or remove them, or set data.skip_unreadable=true to go on without them"
            raise OcmError("\n".join([*bad[:SHOWN], *more, f"{files.path}: {summary}; {remedy}"]))
        for line in bad:
            LOG.warning("left out: %s", line)
        if base.divided_sizes(len(readable), self.test_share)["train"] < 1:
            found = f"{plural(len(readable), 'image')} that can be read"
            share = f"data.test_share = {self.test_share} leaves none for training"
            raise OcmError(f"{self.path}: {found}, of which {share}; add images, or lower it")
        others = [i for i in readable if (i.width, i.height) != (self.side, self.side)]
        if others and self.fit == "none":
            count = f"as {len(others)} of {len(readable)} images are not {self.side}×{self.side}"
            found = f"{files.where(others[0].name)}: {others[0].width}×{others[0].height} pixels"
            raise OcmError(f"{found}, {count}, which data.fit: none expects; crop or resize them")
        return readable

    def _labels(self, names: Sequence[str], captions: Captions) -> ItemLabels:
        given = self.user_files()
        if self.labels == "folders":
            found, where = sub_folders(names, given["path"]).values(), given["path"]
            return _numbered(found, self.classes, where)
        if captions is not None and self.labels == "captions":
            return _numbered(captions, self.classes, self.captions_csv, captions=True)
        if table := given.get("labels_csv"):
            found = read_column(table, "label", names, given["path"]).values()
            return _numbered(found, self.classes, table)
        return None


def prepare(image: Image.Image, side: int, fit: str, channels: int) -> Image.Image:
    """Turn a photograph upright, make it `side` × `side`, in grey or in colour."""
    image = ImageOps.exif_transpose(image)
    if fit == "center_crop":
        image = base.centre_crop(image, side, Resampling.BICUBIC)
    elif fit == "resize":
        image = image.resize((side, side), Resampling.BICUBIC)
    return image.convert("L" if channels == 1 else "RGB")


def sub_folders(names: Sequence[str], path: Path) -> dict[str, str]:
    """Return each file's class: the first folder that not all share, as `ImageFolder` does."""
    shared = len(PurePosixPath(commonpath([name.rpartition("/")[0] for name in names])).parts)
    parts = {name: PurePosixPath(name).parts[shared:] for name in names}
    if outside := [name for name, part in parts.items() if len(part) == 1]:
        found = f"data.labels: folders, but these lie in no folder of a class: {some(outside)}"
        raise OcmError(f"{path}: {found}; put each class into a sub-folder")
    return {name: part[0] for name, part in parts.items()}


def read_column(file: Path, column: str, names: Sequence[str], path: Path) -> dict[str, str]:
    """Read a column of a CSV for each of the named images; another column is `file`."""
    with reading(file, "a CSV in UTF-8", "correct it"):
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{size} bytes, more than {MOST_BYTES}")
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            heads = list(reader.fieldnames or ())
            rows = [(str(row.get("file")).removeprefix("./"), row.get(column)) for row in reader]
    if not {"file", column} <= set(heads):
        found = ", ".join(heads) or "nothing"
        raise OcmError(f"{file}: expected a line with the columns file and {column}, found {found}")
    given = dict(rows)
    if len(given) < len(rows):
        twice = [name for name, count in Counter(name for name, _ in rows).items() if count > 1]
        raise OcmError(f"{file}: more than one line of {some(twice)}; keep one of each")
    if lacking := [name for name in names if not given.get(name)]:
        found = f"no {column} of {len(lacking)} of {len(names)} images in {path}"
        raise OcmError(f"{file}: {found}: {some(lacking)}; add a line for each")
    return {name: str(given[name]) for name in names}


def _numbered(
    given: Iterable[str], classes: int, where: object, captions: bool = False
) -> Int64[ndarray, " image"]:
    """Number the classes by name; but whole numbers stand for themselves, unless in captions."""
    given = list(given)
    kinds = base.distinct(given)
    numbers = {kind: number for number, kind in enumerate(kinds)}
    if not captions and all(kind.isdecimal() for kind in kinds):
        numbers = {kind: int(kind) for kind in kinds}
    needed = max(numbers.values()) + 1
    if needed > classes or (captions and needed != classes):
        found = f"{len(kinds)} {'different captions' if captions else 'classes'} ({some(kinds)})"
        text = f"data.classes is {classes}, found {found}; set data.classes to {needed}"
        raise OcmError(f"{where}: {text}")
    return np.array([numbers[kind] for kind in given], dtype=np.int64)
