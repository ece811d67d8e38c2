"""Zip files: members read in any order, or copied out one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from ocm_core.io.packed import no_member, refuse_bomb, refuse_outside, whole

_CHUNK = 1 << 20


def open_zip(path: Path) -> ZipFile:
    with whole(path):
        opened = ZipFile(path)
    for name in opened.namelist():
        refuse_outside(path, name)
    refuse_bomb(path, sum(member.file_size for member in opened.infolist()))
    return opened


def copy_out(path: Path, opened: ZipFile, name: str, target: Path) -> None:
    """To `target`, whatever the member is called; no more than the size that the zip states."""
    with whole(path):
        source = opened.open(name)
    with source, target.open("wb") as file:
        while chunk := _next_chunk(path, source):
            file.write(chunk)


def _next_chunk(path: Path, source: IO[bytes]) -> bytes:
    with whole(path):
        return source.read(_CHUNK)


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
        if self.names[row] not in self.opened.NameToInfo:
            raise no_member(self.path, self.names[row])
        with whole(self.path):
            return self.opened.read(self.names[row])
