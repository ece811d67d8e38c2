"""Zip files: members read in any order, or copied out one by one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from ocm_core.io.packed import no_member, refuse_outside, whole


def open_zip(path: Path) -> ZipFile:
    with whole(path):
        opened = ZipFile(path)
    for name in opened.namelist():
        refuse_outside(path, name)
    return opened


def copy_out(path: Path, opened: ZipFile, name: str, target: Path) -> None:
    """To `target`, whatever the member is called."""
    with whole(path), opened.open(name) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)


@dataclass(frozen=True)
class ZippedImages:
    path: Path
    opened: ZipFile
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def where(self, row: int) -> str:
        return f"{self.path}: {self.names[row]}"

    def content(self, row: int) -> bytes:
        try:
            with whole(self.path):
                return self.opened.read(self.names[row])
        except KeyError:
            raise no_member(self.path, self.names[row]) from None
