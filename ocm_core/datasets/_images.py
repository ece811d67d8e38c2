"""Encoded images, decoded and cropped when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray
from PIL import Image
from PIL.Image import Resampling

from ocm_core.errors import OcmError
from ocm_core.io.image_files import open_image
from ocm_core.io.reading import reading

if TYPE_CHECKING:
    from ocm_core.datasets.base import Captions, ItemLabels
    from ocm_core.io.archives import IndexedMembers
    from ocm_core.io.image_files import SelectedFiles


@dataclass(frozen=True)
class ImageSplit:
    """A split of encoded images."""

    images: IndexedMembers | SelectedFiles
    prepare: Callable[[Image.Image], Image.Image]
    side: int  # of what `prepare` returns
    labels: ItemLabels = None
    size: tuple[int, int] | None = None  # width and height in the archive, where all have the same
    channels: int = 3  # of what `prepare` returns
    captions: Captions = None

    def __len__(self) -> int:
        return len(self.images)

    def read(self, rows: range) -> UInt8[ndarray, "n c side side"]:
        values = np.empty((len(rows), self.channels, self.side, self.side), np.uint8)
        for value, row in zip(values, rows, strict=True):
            where = self.images.where(row)
            image = decode(self.images.content(row), where)
            if self.size not in (None, image.size):
                expected = f"expected an image of size {self.size}, found {image.size}"
                raise OcmError(f"{where}: {expected}; check that the archive is the published one")
            pixels = np.asarray(self.prepare(image))
            value[:] = pixels.reshape(self.side, self.side, self.channels).transpose(2, 0, 1)
        return values


def decode(content: bytes, where: str) -> Image.Image:
    """Decode an image of an allowed format and size to RGB."""
    with reading(where, "a whole JPEG, PNG or WebP image", "remove the archive, fetch it again"):
        return open_image(content).convert("RGB")


def shrink_to(image: Image.Image, side: int, resampling: Resampling) -> Image.Image:
    """Scale so that the shorter edge is `side` long."""
    scale = side / min(image.size)
    return image.resize((round(image.width * scale), round(image.height * scale)), resampling)


def centre(image: Image.Image, side: int) -> Image.Image:
    """Crop the centre."""
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))
