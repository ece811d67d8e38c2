"""Encoded images: decoded and cropped when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray
from PIL import Image
from PIL.Image import Resampling

from ocm_core.datasets.interface import ItemLabels
from ocm_core.errors import OcmError

FORMATS = ("JPEG", "PNG", "WEBP")


class Encoded(Protocol):
    """The images of a split as they lie in their archive."""

    def __len__(self) -> int: ...

    def where(self, row: int) -> str:
        """Archive and member, for messages."""

    def content(self, row: int) -> bytes: ...


@dataclass(frozen=True)
class ImageSplit:
    images: Encoded
    prepare: Callable[[Image.Image], Image.Image]
    side: int  # of what `prepare` returns
    labels: ItemLabels = None
    size: tuple[int, int] | None = None  # width and height in the archive, where all have the same

    def __len__(self) -> int:
        return len(self.images)

    def read(self, rows: range) -> UInt8[ndarray, "n 3 side side"]:
        values = np.empty((len(rows), 3, self.side, self.side), np.uint8)
        for value, row in zip(values, rows, strict=True):
            value[:] = self._image(row)
        return values

    def _image(self, row: int) -> UInt8[ndarray, "3 side side"]:
        where = self.images.where(row)
        image = decode(self.images.content(row), where)
        if self.size is not None and image.size != self.size:
            raise OcmError(
                f"{where}: expected an image of {_by(self.size)}, found {_by(image.size)};"
                " check that the archive is the published one"
            )
        return np.asarray(self.prepare(image)).transpose(2, 0, 1)


def decode(content: bytes, where: str) -> Image.Image:
    try:
        return Image.open(BytesIO(content), formats=FORMATS).convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise OcmError(
            f"{where}: expected a whole JPEG, PNG or WebP image, found something else ({error});"
            " remove the archive and fetch it again"
        ) from None


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


def shrink_to(image: Image.Image, side: int, resampling: Resampling) -> Image.Image:
    """Scale so that the shorter edge is `side` long."""
    scale = side / min(image.size)
    return image.resize((round(image.width * scale), round(image.height * scale)), resampling)


def centre(image: Image.Image, side: int) -> Image.Image:
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))
