"""Files inside tar and zip archives: read in one pass, copied out, or found through an index.

An index lists names and byte ranges, so that images that lie one after another in a large file are
read in any order. Every name and size is checked before anything is written or read.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple
from zipfile import ZipFile

from ocm_core.errors import OcmError
from ocm_core.io.archives import Located, unpacked
from ocm_core.io.reading import reading

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from numpy import ndarray

    Index = Shaped[ndarray, " member"]  # records like `ByteRange`

# Images hardly shrink: the published archives hold less than twice their own bytes. Small ones, as
# tests make them, may shrink more.
MOST_EXPANSION, ALWAYS_ALLOWED = 10, 64 << 20
_INDEX_FILE = "index.npy"
_CHUNK = 1 << 20


class ByteRange(NamedTuple):
    """Where a member lies in a file."""

    name: bytes
    offset: int
    size: int


def whole(path: Path) -> AbstractContextManager[None]:
    """Turn whatever a damaged archive raises into one error that names the file."""
    return reading(path, "a whole archive", "remove it and fetch it again")


def no_member(path: Path, name: str) -> OcmError:
    """Return the error for an archive without the named file."""
    return OcmError(f"{path}: expected a member {name}, found none; is it the published file?")


def refuse_bomb(path: Path, unpacked_bytes: int) -> None:
    """Refuse an archive that would unpack to far more than its size and fill the disk."""
    limit = max(MOST_EXPANSION * path.stat().st_size, ALWAYS_ALLOWED)
    if unpacked_bytes > limit:
        raise OcmError(
            f"{path}: would unpack to {unpacked_bytes} bytes or more; expected at most {limit}"
            f" ({MOST_EXPANSION} times the archive, or {ALWAYS_ALLOWED}): this is not the published"
            " file; remove it and fetch it again"
        )


def read_members(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Return the content of the named files of a tar, compressed or not."""
    return dict(each_member(path, names))


def each_member(path: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the named files one by one, in the order of the tar."""
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


def tar_ranges(path: Path, suffix: str = "") -> list[ByteRange]:
    """Return the files of an uncompressed tar that end in `suffix`; tars inside it are searched."""
    with path.open("rb") as file:
        ranges = list(_ranges(path, file, suffix))
    end = path.stat().st_size
    for name, offset, size in ranges:  # a header may state any size
        if offset + size > end:
            raise OcmError(
                f"{path}: {name.decode(errors='replace')}: ends after the archive itself; remove"
                " it and fetch it again"
            )
    return ranges


def tar_index(archive: Located, suffix: str) -> Index:
    """Return the index of the files that end in `suffix`, sorted by name; make it once."""

    def make(folder: Path) -> None:
        ranges = tar_ranges(archive.path, suffix)
        if not ranges:
            raise no_member(archive.path, f"*{suffix}")
        save_index(folder, sorted(ranges))

    return load_index(unpacked(archive, make))


def save_index(folder: Path, ranges: Sequence[ByteRange]) -> None:
    """Write an index into the folder."""
    import numpy as np

    width = max(len(member.name) for member in ranges)
    record = [("name", f"S{width}"), ("offset", "<i8"), ("size", "<i8")]
    np.save(folder / _INDEX_FILE, np.array(ranges, dtype=record))


def load_index(folder: Path) -> Index:
    """Map the index of the folder into memory."""
    import numpy as np

    index: Index = np.load(folder / _INDEX_FILE, mmap_mode="r")
    return index


@dataclass(frozen=True)
class IndexedMembers:
    """Members that are read by their place in an index."""

    archive: Path  # for messages: `file` may be what was unpacked from it
    file: Path
    index: Index

    def __len__(self) -> int:
        return len(self.index)

    def where(self, row: int) -> str:
        """Name the archive and the member, for messages."""
        return f"{self.archive}: {self.index[row]['name'].decode(errors='replace')}"

    def content(self, row: int) -> bytes:
        """Read one member."""
        size = int(self.index[row]["size"])
        with self.file.open("rb") as file:
            file.seek(self.index[row]["offset"])
            content = file.read(size)
        if len(content) != size:
            raise OcmError(f"{self.where(row)}: ends too early; remove the archive, fetch it again")
        return content


def open_zip(path: Path) -> ZipFile:
    """Open a zip whose names stay inside it and which unpacks to a reasonable size."""
    with whole(path):
        opened = ZipFile(path)
    for name in opened.namelist():
        _refuse_outside(path, name)
    refuse_bomb(path, sum(member.file_size for member in opened.infolist()))
    return opened


def copy_out(path: Path, opened: ZipFile, name: str, target: Path) -> None:
    """Copy a member to `target`; no more than the size that the zip states."""
    with whole(path):
        source = opened.open(name)
    with source, target.open("wb") as file:
        while chunk := _next_chunk(path, source):
            file.write(chunk)


def _next_chunk(path: Path, source: IO[bytes]) -> bytes:
    with whole(path):
        return source.read(_CHUNK)


def _refuse_outside(path: Path, name: str) -> None:
    """Refuse a member that would be unpacked outside of the folder."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise OcmError(
            f"{path}: the member {name!r} points outside of the archive; this is not the published"
            " file: remove it and fetch it again"
        )


def _check(path: Path, member: tarfile.TarInfo) -> None:
    _refuse_outside(path, member.name)
    if member.size < 0:  # the next header would be sought before this one, for ever
        raise OcmError(f"{path}: {member.name}: of negative size; remove it and fetch it again")


def _ranges(path: Path, file: IO[bytes], suffix: str) -> Iterator[ByteRange]:
    with whole(path), tarfile.open(fileobj=file, mode="r:") as outer:
        for member in outer:
            _check(path, member)
            if member.isreg() and member.name.endswith(suffix):
                yield ByteRange(member.name.encode(), member.offset_data, member.size)
            elif member.isreg() and member.name.endswith(".tar"):
                inner = outer.extractfile(member)
                assert inner is not None  # it is a regular file
                folder = member.name.removesuffix(".tar").encode()
                with closing(inner):
                    for name, offset, size in _ranges(path, inner, suffix):
                        yield ByteRange(folder + b"/" + name, member.offset_data + offset, size)
