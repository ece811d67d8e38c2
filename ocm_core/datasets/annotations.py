"""Labels and captions of a user's images: from sub-folders or a CSV."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ocm_core.datasets.base import distinct
from ocm_core.errors import OcmError
from ocm_core.io.reading import reading

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy import ndarray

MOST_BYTES = 1 << 30
SHOWN = 10  # names in one message


def sub_folders(names: Sequence[str], path: Path) -> dict[str, str]:
    """Return each file's class: the first folder that not all share, as `ImageFolder` does."""
    parts = [PurePosixPath(name).parts for name in names]
    shared = 0
    while all(len(part) > shared + 1 for part in parts) and len({p[shared] for p in parts}) == 1:
        shared += 1
    outside = [name for name, part in zip(names, parts, strict=True) if len(part) == shared + 1]
    if outside:
        raise OcmError(
            f"{path}: data.labels: folders, but these lie in no folder of a class:"
            f" {_some(outside)}; put each class into a sub-folder, or use labels: none or csv"
        )
    return {name: part[shared] for name, part in zip(names, parts, strict=True)}


def read_column(file: Path, column: str, names: Sequence[str], path: Path) -> dict[str, str]:
    """Read a column of a CSV for each of the named images; another column is `file`."""
    with reading(file, "a CSV in UTF-8", "correct it"):
        if (size := file.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{size} bytes, more than {MOST_BYTES}")
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            heads = list(reader.fieldnames or ())
            rows = [(row.get("file"), row.get(column)) for row in reader]
    if not {"file", column} <= set(heads):
        raise OcmError(
            f"{file}: expected a first line with the columns file and {column}, found"
            f" {', '.join(heads) or 'nothing'}"
        )
    given = {str(name).removeprefix("./"): value for name, value in rows}
    if len(given) < len(rows):
        _refuse_twice(file, [str(name).removeprefix("./") for name, _ in rows])
    lacking = [name for name in names if not given.get(name)]
    if lacking:
        raise OcmError(
            f"{file}: no {column} of {len(lacking)} of {len(names)} images in {path}:"
            f" {_some(lacking)}; add a line for each, with its name relative to {path}"
        )
    return {name: str(given[name]) for name in names}


def classes_of(
    given: Mapping[str, str], names: Sequence[str], classes: int, where: Path
) -> Int64[ndarray, " image"]:
    """Number the classes: whole numbers stand for themselves, other names in their order."""
    import numpy as np

    kinds = set(given.values())
    if all(kind.isdecimal() for kind in kinds):
        numbers = {kind: int(kind) for kind in kinds}
    else:
        numbers = {kind: number for number, kind in enumerate(sorted(kinds))}
    if max(numbers.values()) >= classes:
        raise OcmError(
            f"{where}: data.classes is {classes}, found {len(kinds)} classes up to number"
            f" {max(numbers.values())} ({_some(sorted(kinds))}); set data.classes to"
            f" {max(numbers.values()) + 1}"
        )
    return np.array([numbers[given[name]] for name in names], dtype=np.int64)


def captions_as_classes(
    captions: Sequence[str], classes: int, where: object
) -> Int64[ndarray, " image"]:
    """Number each caption by its place among the different ones."""
    import numpy as np

    numbers = {caption: number for number, caption in enumerate(distinct(captions))}
    if len(numbers) != classes:
        raise OcmError(
            f"{where}: data.classes is {classes}, found {len(numbers)} different captions; set"
            f" data.classes to {len(numbers)}"
        )
    return np.array([numbers[caption] for caption in captions], dtype=np.int64)


def _refuse_twice(file: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    twice = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    raise OcmError(f"{file}: more than one line of {_some(twice)}; keep one of each")


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
