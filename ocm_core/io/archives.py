"""Published archives: where they are, what they must be, and where a file put by hand belongs.

Nothing is opened before its digests are right: those that are published, and the one that the
first sight of a file recorded in `datasets.lock.json`. Each kind of data declares its own archives,
so that a word about one does not make the others stale.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.download import byte_bar, download
from ocm_core.io.lock import Lock, Recorded

CHUNK = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One file, at `<archives>/<kind>/<file>`. What nobody states is None."""

    kind: str
    file: str
    page: str  # where the authors, or those who keep it, offer the file
    terms: str
    url: str | None = None  # None: there is no address without signing in
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None

    def remedy(self, path: Path) -> str:
        address = f"{self.url}, see {self.page}" if self.url else self.page
        return f"fetch it by hand from {address}, and put it at {path} (terms: {self.terms})"


@dataclass(frozen=True)
class Located:
    path: Path
    sha256: str


@dataclass(frozen=True)
class Digests:
    """Of a file as it was at some time; in `<file>.checked.json`, so that it is read whole once."""

    bytes: int
    mtime_ns: int
    sha256: str
    md5: str


def locate(archive: Archive, archives: Path) -> Located:
    """The file, checked: the one that lies there, or else downloaded."""
    path = archives / archive.kind / archive.file
    if archive.url is None and not path.exists():
        raise OcmError(f"{path}: not there, and cannot be downloaded; {archive.remedy(path)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):
        by_hand = path.exists()
        if archive.url is not None and not by_hand:
            with byte_bar(archive.file) as progress:
                download(archive.url, path, archive.remedy(path), progress)
        try:
            return _checked(archive, path, Lock(archives.with_name(f"{archives.name}.lock.json")))
        except OcmError:
            if not by_hand:
                path.unlink()
            raise


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process downloads to or unpacks in `folder`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _checked(archive: Archive, path: Path, lock: Lock) -> Located:
    remedy = archive.remedy(path)

    def agree(what: str, published: object, found: object) -> None:
        if published is not None and published != found:
            raise OcmError(
                f"{path}: expected {what} {published} as published, found {found}; {remedy}"
            )

    remembered = _remembered(path)
    if remembered is None:
        _refuse_pages(path, remedy)
    agree("bytes", archive.bytes, path.stat().st_size)  # before hours of reading
    found = remembered or _digests(path)
    agree("md5", archive.md5, found.md5)
    agree("sha256", archive.sha256, found.sha256)
    key, record = f"{archive.kind}/{archive.file}", Recorded(found.sha256, found.bytes)
    lock.check(key, record, path, remedy)
    lock.record(key, record)
    if remembered is None:
        _note(path).write_text(json.dumps(asdict(found)))
    return Located(path, found.sha256)


def _refuse_pages(path: Path, remedy: str) -> None:
    with path.open("rb") as file:
        if file.read(512).lstrip().startswith(b"<"):
            raise OcmError(
                f"{path}: expected an archive, found a web page (a quota notice or a sign-in, as a"
                f" rule); {remedy}"
            )


def _remembered(path: Path) -> Digests | None:
    """What an earlier look found, if the file has not been touched since."""
    if not _note(path).exists():
        return None
    try:
        noted = TypeAdapter(Digests).validate_json(_note(path).read_text())
    except ValidationError:
        return None  # it was cut off while being written, and saves nothing but time
    now = path.stat()
    return noted if (noted.bytes, noted.mtime_ns) == (now.st_size, now.st_mtime_ns) else None


def _digests(path: Path) -> Digests:
    before = path.stat()
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file, byte_bar(f"digest of {path.name}") as progress:
        while chunk := file.read(CHUNK):
            sha256.update(chunk)
            md5.update(chunk)
            progress(file.tell(), before.st_size)
    return Digests(before.st_size, before.st_mtime_ns, sha256.hexdigest(), md5.hexdigest())


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked.json")
