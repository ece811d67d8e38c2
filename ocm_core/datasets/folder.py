"""A user's own images, from a folder, a zip or a tar: checked once, cropped when they are read.

A recorded permutation of the files, in the order of their names, divides them. Photographs are
turned as their camera recorded; transparency is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ocm_core.datasets.base import DataParams, DataSet, Share, divided_sizes, permutation, recorded
from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of
from ocm_core.schema.block import Seed
from ocm_core.text import plural

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy import ndarray
    from PIL import Image

    from ocm_core.datasets.base import Captions, ItemLabels
    from ocm_core.io.image_files import CheckedImage, ImageFiles

File = Annotated[str, Field(min_length=1, max_length=4096)]

SHOWN = 20  # files in one message
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
    caption is a class. Paths are relative to the project.
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
        if (self.labels == "none") != (self.classes == 0):
            raise ValueError(
                f"data.classes: {self.classes}, and data.labels is {self.labels!r}; expected 0"
                " where there are no labels, else the number of classes"
            )
        if (self.labels == "csv") != (self.labels_csv is not None):
            raise ValueError(
                f"data.labels_csv: {self.labels_csv!r}, and data.labels is {self.labels!r};"
                " expected a file with labels: csv, else null"
            )
        if self.labels == "captions" and self.captions_csv is None:
            raise ValueError("data.captions_csv: null, and data.labels is 'captions'; name a file")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.side, self.side)

    def user_files(self) -> dict[str, Path]:
        files = {
            "path": self.path,
            "labels_csv": self.labels_csv,
            "captions_csv": self.captions_csv,
        }
        return {key: Path(file).expanduser() for key, file in files.items() if file}

    def count_items(self) -> dict[str, int]:
        """Count the image files as if every one could be read."""
        from ocm_core.io.image_files import images_among, open_image_files

        images, _ = images_among(open_image_files(self.user_files()["path"]).entries)
        return divided_sizes(len(images), self.test_share)

    def open(self, archives: Path) -> DataSet:
        import numpy as np

        from ocm_core.datasets._images import ImageSplit
        from ocm_core.io.image_files import (
            EXPECTED,
            CheckedFiles,
            checked,
            checksum,
            images_among,
            open_image_files,
        )

        path = self.user_files()["path"]
        files = open_image_files(path)
        entries, others = images_among(files.entries)
        if not entries:
            raise OcmError(f"{path}: {EXPECTED}, found {_listed(others) or 'nothing'}")
        everything = checked(files, entries, archives / self.kind)
        images = self._readable(files, list(everything.values()))
        self._refuse_sizes(files, images)
        names = [image.name for image in images]
        parts = self._divided(len(names))
        captions = self._captions(names)
        labels = self._labels(names, captions)
        return DataSet(
            splits={
                split: ImageSplit(
                    CheckedFiles(files, [names[row] for row in rows], everything),
                    self._prepare(),
                    self.side,
                    None if labels is None else labels[rows],
                    channels=self.channels,
                    captions=captions and [captions[row] for row in rows],
                )
                for split, rows in parts.items()
            },
            levels=self.levels,
            provenance={
                "archives": {"images": checksum(images)} | self._annotation_checksums(),
                "crop": f"{FITS[self.fit]}, to {self.side}×{self.side}",
                "permutation": recorded(np.concatenate(list(parts.values())), self.seed),
                "counts": {
                    "images": len(images),
                    "unreadable": len(everything) - len(images),
                    "enlarged": sum(min(i.width, i.height) < self.side for i in images),
                    "duplicates": len(images) - len({image.sha256 for image in images}),
                    "others": others,
                },
            },
        )

    def _readable(self, files: ImageFiles, images: Sequence[CheckedImage]) -> list[CheckedImage]:
        bad = [image for image in images if image.problem is not None]
        lines = [f"{files.where(image.name)}: {image.problem}" for image in bad]
        if lines and not self.skip_unreadable:
            more = [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
            summary = f"{plural(len(bad), 'file')} of {len(images)} cannot be read"
            remedy = "mend or remove them, or set data.skip_unreadable=true to go on without them"
            raise OcmError("\n".join([*lines[:SHOWN], *more, f"{files.path}: {summary}; {remedy}"]))
        for line in lines:
            LOG.warning("left out: %s", line)
        return [image for image in images if image.problem is None]

    def _refuse_sizes(self, files: ImageFiles, images: Sequence[CheckedImage]) -> None:
        wanted = (self.side, self.side)
        others = [image for image in images if (image.width, image.height) != wanted]
        if others and self.fit == "none":
            first = others[0]
            raise OcmError(
                f"{files.where(first.name)}: {first.width}×{first.height} pixels, as {len(others)}"
                f" of {len(images)} images are not {self.side}×{self.side}, which data.fit: none"
                " expects; use center_crop or resize, or another data.side"
            )

    def _divided(self, count: int) -> dict[str, Int64[ndarray, " image"]]:
        order, train = permutation(count, self.seed), divided_sizes(count, self.test_share)["train"]
        if train < 1:
            raise OcmError(
                f"{self.path}: {plural(count, 'image')} that can be read, of which data.test_share"
                f" = {self.test_share} leaves none for training; add images, or lower it"
            )
        return {"train": order[:train], "test": order[train:]}

    def _labels(self, names: Sequence[str], captions: Captions) -> ItemLabels:
        from ocm_core.datasets.annotations import (
            captions_as_classes,
            classes_of,
            read_column,
            sub_folders,
        )

        files = self.user_files()
        path = files["path"]
        if self.labels == "folders":
            return classes_of(sub_folders(names, path), names, self.classes, path)
        if self.labels == "captions" and captions is not None:
            return captions_as_classes(captions, self.classes, self.captions_csv)
        if "labels_csv" in files:
            table = files["labels_csv"]
            return classes_of(read_column(table, "label", names, path), names, self.classes, table)
        return None

    def _captions(self, names: Sequence[str]) -> Captions:
        from ocm_core.datasets.annotations import read_column

        files = self.user_files()
        if "captions_csv" not in files:
            return None
        captions = read_column(files["captions_csv"], "caption", names, files["path"])
        return [captions[name] for name in names]

    def _annotation_checksums(self) -> dict[str, str]:
        tables = {"labels_csv": "labels", "captions_csv": "captions"}
        return {
            tables[key]: sha256_of(file) for key, file in self.user_files().items() if key in tables
        }

    def _prepare(self) -> Callable[[Image.Image], Image.Image]:
        mode = "L" if self.channels == 1 else "RGB"
        return partial(prepare, side=self.side, fit=self.fit, mode=mode)


PARAMS = FolderData


def prepare(image: Image.Image, side: int, fit: str, mode: str) -> Image.Image:
    """Turn a photograph upright, make it `side` × `side` and convert it to `mode`."""
    from PIL import ImageOps
    from PIL.Image import Resampling

    from ocm_core.datasets._images import centre, shrink_to

    image = ImageOps.exif_transpose(image)
    if fit == "center_crop":
        image = centre(shrink_to(image, side, Resampling.BICUBIC), side)
    elif fit == "resize":
        image = image.resize((side, side), Resampling.BICUBIC)
    return image.convert(mode)


def _listed(others: dict[str, int]) -> str:
    return ", ".join(f"{count} {suffix or 'without a suffix'}" for suffix, count in others.items())
