"""The file of the table of moments."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ocm_core.training.moments import Moments

MOMENTS_FILE = "moments.npz"


def save_moments(folder: Path, moments: Moments) -> None:
    temporary = folder / f"new-{MOMENTS_FILE}"
    np.savez(temporary, **vars(moments))
    temporary.replace(folder / MOMENTS_FILE)


def load_moments(folder: Path) -> Moments:
    with np.load(folder / MOMENTS_FILE) as tables:
        return Moments(**{name: np.array(tables[name]) for name in tables.files})
