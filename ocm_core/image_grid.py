"""Save many images as one picture."""

from __future__ import annotations

from math import ceil, sqrt
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor


def save_grid(
    images: Float[Tensor, "image channel height width"], path: str | Path, zoom: int = 1
) -> None:
    """Save images in [-1, 1] as one PNG, nearly square; a pixel becomes `zoom` wide."""
    count, channels, height, width = images.shape
    columns = ceil(sqrt(count))
    rows = ceil(count / columns)
    grid = np.zeros((rows, height, columns, width, channels), dtype=np.uint8)
    pixels = ((images + 1) * 127.5).round().clamp(0, 255).to("cpu", torch.uint8)
    for i, image in enumerate(pixels.permute(0, 2, 3, 1).numpy()):
        grid[i // columns, :, i % columns] = image
    flat = grid.reshape(rows * height, columns * width, channels)
    flat = flat.repeat(zoom, axis=0).repeat(zoom, axis=1)
    Image.fromarray(flat.squeeze(-1) if channels == 1 else flat).save(path)
