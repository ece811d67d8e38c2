"""The training curve: smoothed losses along the iterations, as a small JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FILE = "curve.json"
Curve = list[dict[str, float]]


def save_curve(folder: Path, curve: Sequence[dict[str, float]]) -> None:
    (folder / FILE).write_text(json.dumps(curve, indent=1) + "\n")


def load_curve(folder: Path) -> Curve:
    curve: Curve = json.loads((folder / FILE).read_text())
    return curve
