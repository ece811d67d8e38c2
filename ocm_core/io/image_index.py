"""Images that lie one after another in a large file, read in any order through an index of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from ocm_core.errors import OcmError

Index = Shaped[ndarray, " image"]  # records like entries
_FILE = "index.npy"


class IndexEntry(NamedTuple):
    name: bytes
    offset: int  # in the file
    size: int


def save_index(folder: Path, entries: Sequence[IndexEntry]) -> None:
    width = max(len(entry.name) for entry in entries)
    record = [("name", f"S{width}"), ("offset", "<i8"), ("size", "<i8")]
    np.save(folder / _FILE, np.array(entries, dtype=record))


def load_index(folder: Path) -> Index:
    index: Index = np.load(folder / _FILE, mmap_mode="r")
    return index


@dataclass(frozen=True)
class IndexedImages:
    archive: Path  # for messages: `file` may be what was unpacked from it
    file: Path
    index: Index

    def __len__(self) -> int:
        return len(self.index)

    def where(self, row: int) -> str:
        return f"{self.archive}: {self.index[row]['name'].decode(errors='replace')}"

    def content(self, row: int) -> bytes:
        size = int(self.index[row]["size"])
        with self.file.open("rb") as file:
            file.seek(self.index[row]["offset"])
            content = file.read(size)
        if len(content) != size:
            raise OcmError(f"{self.where(row)}: ends too early; remove the archive, fetch it again")
        return content
