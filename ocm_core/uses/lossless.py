"""Lossless formats of images: what a codec begins with, and what it stands beside."""

from __future__ import annotations

from io import BytesIO
from math import ceil, sqrt
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray
from PIL import Image

ImagePixels = UInt8[ndarray, "image channel height width"]  # from 0 on
Sheet = UInt8[ndarray, "height width channel"]
# by the name of the measure: Pillow's format, with its highest effort
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "png": ("PNG", {"optimize": True}),
    "webp": ("WEBP", {"lossless": True, "quality": 100, "method": 6}),
    "jxl": ("JXL", {"lossless": True, "effort": 9}),
}


def strip(images: ImagePixels) -> Sheet:
    """Return the images one below the other."""
    return images.transpose(0, 2, 3, 1).reshape(-1, images.shape[3], images.shape[1])


def unstrip(sheet: Sheet, shape: tuple[int, ...]) -> ImagePixels:
    """Return the images of this shape that stand one below the other; grey ones have one colour."""
    channels, height, width = shape
    return sheet.reshape(-1, height, width, sheet.shape[2]).transpose(0, 3, 1, 2)[:, :channels]


def mosaic(images: ImagePixels) -> Sheet:
    """Return the images side by side, in as many rows as columns; blank ones fill the last row."""
    columns = ceil(sqrt(len(images)))
    rows, (channels, height, width) = ceil(len(images) / columns), images.shape[1:]
    sheet = np.zeros((rows * columns, channels, height, width), np.uint8)
    sheet[: len(images)] = images
    parts = sheet.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    return parts.reshape(rows * height, columns * width, channels)


def encoded(sheet: Sheet, name: str) -> bytes:
    """Return the bytes of one picture, grey or in colours, in one of the formats."""
    (kind, options), file = FORMATS[name], BytesIO()
    Image.fromarray(sheet[..., 0] if sheet.shape[2] == 1 else sheet).save(file, kind, **options)
    return file.getvalue()


def available() -> list[str]:
    """Return the formats that are installed: JPEG XL is a plug-in (`pillow-jxl-plugin`)."""
    try:
        import pillow_jxl  # noqa: F401  # registers itself with Pillow
    except ImportError:
        return [name for name in FORMATS if name != "jxl"]
    return list(FORMATS)


def bits_by_format(images: ImagePixels) -> dict[str, float]:
    """Return the bits per dimension of formats: each image by itself, and all as one mosaic."""
    bits = dict[str, float]()
    for name in available():
        each = sum(len(encoded(strip(image[None]), name)) for image in images)
        bits[f"{name}_each"] = 8 * each / images.size
        bits[f"{name}_mosaic"] = 8 * len(encoded(mosaic(images), name)) / images.size
    return bits


def read_webp(content: bytes) -> Sheet:
    """Return the picture in colours; what follows it is left out."""
    with Image.open(BytesIO(content), formats=["WEBP"]) as image:
        return np.asarray(image.convert("RGB"))
