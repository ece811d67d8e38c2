"""Arrays as pictures: sheets of images, colour maps, WebP files and addresses inside a page."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from math import ceil, sqrt

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from numpy import ndarray
from PIL import Image

PictureBatch = UInt8[ndarray, "n h w"] | UInt8[ndarray, "n h w 3"]
Pixels = UInt8[ndarray, "h w c"]

# Viridis, from dark to light, safe for colour-blind readers:
SCALE = (
    *("#440154", "#482878", "#3e4989", "#31688e", "#26828e"),
    *("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"),
)


def shrink(images: Shaped[ndarray, "n h w *c"], reduction: int) -> Shaped[ndarray, "n H W *c"]:
    """Average blocks of `reduction` by `reduction` pixels; an odd rim is left out."""
    count, height, width, *channels = images.shape
    rows, columns = max(1, height // reduction), max(1, width // reduction)
    down, across = min(reduction, height), min(reduction, width)
    whole = images[:, : rows * down, : columns * across]
    blocks = whole.reshape(count, rows, down, columns, across, *channels)
    means: ndarray = blocks.mean((2, 4))
    return np.rint(means).astype(np.uint8) if images.dtype == np.uint8 else means


def sheet(images: PictureBatch, columns: int | None = None) -> Pixels:
    """Arrange images in so many columns, with one transparent pixel after each."""
    count, height, width = images.shape[:3]
    pixels = images[..., None] if images.ndim == 3 else images
    columns = min(columns or ceil(sqrt(count)), count)
    rows = ceil(count / columns)
    canvas = np.zeros((rows * (height + 1), columns * (width + 1), 4), np.uint8)
    for i, image in enumerate(pixels):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        canvas[top : top + height, left : left + width, :3] = image
        canvas[top : top + height, left : left + width, 3] = 255
    return canvas


def colours(values: Float[ndarray, "h w"], top: float) -> UInt8[ndarray, "h w 3"]:
    """Colour values from zero to `top` and above, from dark to light."""
    anchors = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in SCALE], dtype=float)
    places = np.clip(values / top, 0, 1) * (len(anchors) - 1)
    channels = [np.interp(places, range(len(anchors)), anchors[:, c]) for c in range(3)]
    return np.asarray(np.rint(np.stack(channels, -1)), np.uint8)


def webp(pixels: Pixels, *, lossless: bool = True) -> bytes:
    """Encode a picture; the same bytes for the same pixels."""
    file = BytesIO()
    image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
    image.save(file, "WEBP", lossless=lossless, quality=85, method=4)
    return file.getvalue()


def uri(pixels: Pixels) -> str:
    """Return a picture as an address inside a page."""
    return f"data:image/webp;base64,{b64encode(webp(pixels)).decode()}"
