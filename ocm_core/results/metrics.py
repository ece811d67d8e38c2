"""Nested means for `dvc metrics diff`: measure → sampler → method → K<nfe> → cfg<guidance>.

Six significant digits: a diff should show changes, not the last bits of a float.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Any

from ocm_core.results.replicates import replicates
from ocm_core.results.table import Results, Row

Nested = dict[str, Any]

_PARTS = "bits_per_dim_"  # parts and differences of a bound, which is enough
_PLACE = ("score", "sampler", "timesteps", "method", "nfe", "guidance")
UNGUIDED = 1.0


def nested(results: Results) -> Nested:
    """Return means with their spread or error; what is not defined, or diverged, is absent."""
    found: Nested = {}
    several = len(results.distinct("score")) > 1
    guided = is_guided(results)
    for (measure, *_), rows in results.groups("measure", *_PLACE).items():
        if measure.startswith(_PARTS):
            continue
        first = rows[0]
        name = f"{measure}_{first.score}_score" if several and first.score else measure
        path = _path(first, guided=guided)
        for ending, value in _numbers(rows):
            _put(found, [f"{name}{ending}", *path], value)
    return found


def is_guided(results: Results) -> bool:
    """Tell whether any guidance but 1 was used."""
    return any(scale != UNGUIDED for scale in results.distinct("guidance"))


def _numbers(rows: Results) -> Iterator[tuple[str, float]]:
    here = replicates(rows)
    yield "", here.estimate.mean
    if here.known:
        yield "_se", here.known.error
    elif rows[0].measure != "clamped":
        yield "_std", here.spread


def _path(row: Row, *, guided: bool) -> list[str]:
    per_timestep = row.timesteps.isdigit()
    chain = row.sampler or ("" if per_timestep else row.timesteps)
    parts = [
        chain,
        row.method,
        f"t{row.timesteps}" if per_timestep else "",
        "" if row.nfe is None else f"K{row.nfe}",
        f"cfg{row.guidance:g}" if guided and row.guidance is not None else "",
    ]
    return [part for part in parts if part]


def _put(tree: Nested, path: list[str], value: float) -> None:
    if isnan(value):
        return
    *branches, leaf = path
    for branch in branches:
        tree = tree.setdefault(branch, {})
    tree[leaf] = float(f"{value:.6g}")
