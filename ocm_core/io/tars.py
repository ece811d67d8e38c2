"""Tar files: some members read in one pass, or an index for reading images in any order."""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from ocm_core.errors import OcmError
from ocm_core.io.archives import Located
from ocm_core.io.packed import no_member, refuse_outside, unpacked, whole

Index = Shaped[ndarray, " image"]  # records of name, offset in the archive, and size
INDEX = "index.npy"


def read_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """The content of the named files of a tar, compressed or not."""
    found: dict[str, bytes] = {}
    with whole(path), tarfile.open(path) as tar:
        for member in tar:
            refuse_outside(path, member.name)
            file = tar.extractfile(member) if member.name in names else None
            if file:
                found[member.name] = file.read()
    for name in names:
        if name not in found:
            raise no_member(path, name)
    return found


def indexed(archive: Located, suffix: str) -> Index:
    """The files that end in `suffix`, sorted by name; tars inside the tar are searched, too."""

    def make(folder: Path) -> None:
        with archive.path.open("rb") as file:
            entries = list(_entries(archive.path, file, suffix))
        if not entries:
            raise no_member(archive.path, f"*{suffix}")
        width = max(len(name) for name, _, _ in entries)
        record = [("name", f"S{width}"), ("offset", "<i8"), ("size", "<i8")]
        np.save(folder / INDEX, np.sort(np.array(entries, dtype=record), order="name"))

    index: Index = np.load(unpacked(archive, make) / INDEX, mmap_mode="r")
    return index


def _entries(path: Path, file: IO[bytes], suffix: str) -> Iterator[tuple[bytes, int, int]]:
    with whole(path), tarfile.open(fileobj=file, mode="r:") as outer:
        for member in outer:
            refuse_outside(path, member.name)
            if member.isreg() and member.name.endswith(suffix):
                yield member.name.encode(), member.offset_data, member.size
            elif member.isreg() and member.name.endswith(".tar"):
                inner = outer.extractfile(member)
                assert inner is not None  # it is a regular file
                folder = member.name.removesuffix(".tar").encode()
                with closing(inner):
                    for name, offset, size in _entries(path, inner, suffix):
                        yield folder + b"/" + name, member.offset_data + offset, size


@dataclass(frozen=True)
class TarredImages:
    path: Path
    index: Index

    def __len__(self) -> int:
        return len(self.index)

    def where(self, row: int) -> str:
        return f"{self.path}: {self.index[row]['name'].decode()}"

    def content(self, row: int) -> bytes:
        size = int(self.index[row]["size"])
        with self.path.open("rb") as file:
            file.seek(self.index[row]["offset"])
            content = file.read(size)
        if len(content) != size:
            raise OcmError(f"{self.where(row)}: ends too early; remove the archive, fetch it again")
        return content
