"""Tar files: some members read in one pass, or an index for reading images in any order."""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

from ocm_core.errors import OcmError
from ocm_core.io.archives import Located
from ocm_core.io.image_index import Index, IndexEntry, load_index, save_index
from ocm_core.io.packed import no_member, refuse_bomb, refuse_outside, unpacked, whole


def read_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """The content of the named files of a tar, compressed or not."""
    return dict(each_member(path, names))


def each_member(path: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """The same one by one, in the order of the tar, so that one is in memory at a time."""
    missing = dict.fromkeys(names)
    with whole(path), tarfile.open(path) as tar:
        for member in tar:
            _check(path, member)
            refuse_bomb(path, member.offset_data + member.size)
            file = tar.extractfile(member) if member.name in missing else None
            if file:
                del missing[member.name]
                yield member.name, file.read()
    for name in missing:
        raise no_member(path, name)


def indexed(archive: Located, suffix: str) -> Index:
    """The files that end in `suffix`, sorted by name; tars inside the tar are searched, too."""

    def make(folder: Path) -> None:
        with archive.path.open("rb") as file:
            entries = list(_entries(archive.path, file, suffix))
        if not entries:
            raise no_member(archive.path, f"*{suffix}")
        _refuse_beyond_end(archive.path, entries)
        save_index(folder, sorted(entries))

    return load_index(unpacked(archive, make))


def tar_entries(path: Path) -> list[IndexEntry]:
    """Every file of a tar that is not compressed."""
    with path.open("rb") as file:
        entries = list(_entries(path, file, ""))
    _refuse_beyond_end(path, entries)
    return entries


def _refuse_beyond_end(path: Path, entries: Sequence[IndexEntry]) -> None:
    """A header may state any size."""
    end = path.stat().st_size
    for name, offset, size in entries:
        if offset + size > end:
            raise OcmError(
                f"{path}: {name.decode(errors='replace')}: ends after the archive itself; remove"
                " it and fetch it again"
            )


def _check(path: Path, member: tarfile.TarInfo) -> None:
    refuse_outside(path, member.name)
    if member.size < 0:  # the next header would be sought before this one, for ever
        raise OcmError(f"{path}: {member.name}: of negative size; remove it and fetch it again")


def _entries(path: Path, file: IO[bytes], suffix: str) -> Iterator[IndexEntry]:
    with whole(path), tarfile.open(fileobj=file, mode="r:") as outer:
        for member in outer:
            _check(path, member)
            if member.isreg() and member.name.endswith(suffix):
                yield IndexEntry(member.name.encode(), member.offset_data, member.size)
            elif member.isreg() and member.name.endswith(".tar"):
                inner = outer.extractfile(member)
                assert inner is not None  # it is a regular file
                folder = member.name.removesuffix(".tar").encode()
                with closing(inner):
                    for name, offset, size in _entries(path, inner, suffix):
                        yield IndexEntry(folder + b"/" + name, member.offset_data + offset, size)
