"""The table of moments, whole or begun."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ocm_core.io.atomic import replacing
from ocm_core.training.moments import Moments

MOMENTS_FILE = "moments.npz"


def save_moments(folder: Path, moments: Moments) -> None:
    with replacing(folder / MOMENTS_FILE) as temporary, temporary.open("wb") as file:
        np.savez(file, **vars(moments))


def load_moments(folder: Path) -> Moments:
    with np.load(folder / MOMENTS_FILE) as tables:
        return Moments(**{name: np.array(tables[name]) for name in tables.files})
