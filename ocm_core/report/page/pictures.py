"""Arrays as pictures inside the page, few and small enough for its size to be bounded.

The bound counts pixels, not bytes: a picture of pure noise, which early samples are, is as large as
its pixels. WebP without loss has a quarter less of a photograph than PNG has.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from math import ceil, prod, sqrt

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from numpy import ndarray
from PIL import Image
from plotly.colors import hex_to_rgb, sequential

Pixels = UInt8[ndarray, "n h w"] | UInt8[ndarray, "n h w 3"]

SCALE = tuple(sequential.Viridis)  # from dark to light, safe for colour-blind readers
_REDUCTIONS = (1, 2, 4, 8)


def fit(shape: Sequence[int], sheets: int, budget: int, fewest: int) -> tuple[int, int]:
    """How many of the images (count, height, width, ...) a sheet may show, and how much smaller.

    They are shrunk, to a half, a quarter or an eighth of their sides, rather than be too few.
    """
    available, *one = shape
    for reduction in _REDUCTIONS:
        room = budget * reduction**2 // (sheets * prod(one))
        if room >= min(fewest, available):
            return min(available, room), reduction
    return 1, _REDUCTIONS[-1]


def shrink(images: Shaped[ndarray, "n h w *c"], reduction: int) -> Shaped[ndarray, "n H W *c"]:
    """The mean of each block of `reduction` by `reduction` pixels; an odd rim is left out."""
    count, height, width, *channels = images.shape
    rows, columns = height // reduction, width // reduction
    whole = images[:, : rows * reduction, : columns * reduction]
    blocks = whole.reshape(count, rows, reduction, columns, reduction, *channels)
    means: ndarray = blocks.mean((2, 4))
    return np.rint(means).astype(np.uint8) if images.dtype == np.uint8 else means


def sheet(images: Pixels, columns: int | None = None) -> UInt8[ndarray, "h w c"]:
    """The images in a square, or in so many columns, with one transparent pixel between them."""
    count, height, width = images.shape[:3]
    pixels = images[..., None] if images.ndim == 3 else images
    columns = min(columns or ceil(sqrt(count)), count)
    rows = ceil(count / columns)
    size = (rows * (height + 1) - 1, columns * (width + 1) - 1, pixels.shape[-1] + 1)
    canvas = np.zeros(size, np.uint8)
    for i, image in enumerate(pixels):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        canvas[top : top + height, left : left + width, :-1] = image
        canvas[top : top + height, left : left + width, -1] = 255
    return canvas


def colours(values: Float[ndarray, "h w"], top: float) -> UInt8[ndarray, "h w 3"]:
    """Zero to `top` and above as a scale from dark to light, safe for colour-blind readers."""
    anchors = np.array([hex_to_rgb(colour) for colour in SCALE], dtype=float)
    places = np.clip(values / top, 0, 1) * (len(anchors) - 1)
    channels = [np.interp(places, range(len(anchors)), anchors[:, c]) for c in range(3)]
    return np.asarray(np.rint(np.stack(channels, -1)), np.uint8)


def uri(pixels: UInt8[ndarray, "h w c"]) -> str:
    file = BytesIO()
    image = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
    image.save(file, "WEBP", lossless=True)
    return f"data:image/webp;base64,{b64encode(file.getvalue()).decode()}"
