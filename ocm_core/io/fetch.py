"""Fetch published files: take the one at hand or download it, and check it before it is opened.

Most authors publish no sha256. The first fetch records one in a lock file, which is committed; from
then on a file that differs is refused. A refused download is removed; a file put by hand is not.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from re import IGNORECASE, fullmatch, sub
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter, ValidationError
from tqdm import tqdm

from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.io.checksums import FileRecord
from ocm_core.io.reading import reading, reason, refuse_damaged_zip, refuse_web_page

LOCK_FILE = Path("checkpoints.lock.json")
SCHEMES = ("file", "http", "https")
SECONDS_OF_SILENCE = 60
LOG = logging.getLogger("ocm")

_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_USER = r"(?<=//)[^/?#]*@"  # user:password@ behind the scheme
_SECRET = r"((?:^|[?&;])[^=&;#]*(?:key|pass|secret|sig|token|credential)[^=&;#]*=)[^&;#]*"


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file that its authors offer; None where no page states a fact."""

    file: str
    page: str  # where the authors point to the file
    url: str | None = None  # None: there is no address without signing in
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    note: str = ""

    def remedy(self, path: Path) -> str:
        """Return what a user can do when the file at `path` is missing or wrong."""
        note = f" ({self.note})" if self.note else ""
        address = f"{self.url}, linked from {self.page}" if self.url else self.page
        return f"fetch it by hand from {address}{note}, and put it at {path}"


@dataclass(frozen=True)
class Lock:
    """A lock file: the record that each published file had when it was first fetched."""

    path: Path = LOCK_FILE

    def record(self, key: str, record: FileRecord) -> None:
        """Add a record; several processes may do so at a time."""
        with alone_in(self.path.parent):
            entries = self.entries()
            if entries.get(key) != record:
                values = {name: asdict(entry) for name, entry in (entries | {key: record}).items()}
                write_text(self.path, json.dumps(values, indent=2, sort_keys=True) + "\n")

    def entries(self) -> dict[str, FileRecord]:
        """Return the records by `folder/file`."""
        if not self.path.exists():
            return {}
        with reading(self.path, "sha256 and bytes by name and file", "restore it from git"):
            return TypeAdapter(dict[str, FileRecord]).validate_json(self.path.read_bytes())


@dataclass(frozen=True)
class CheckedFile:
    """The checksums in `<file>.checked.json`, so that a large file is read for them only once."""

    bytes: int
    mtime_ns: int
    sha256: str
    md5: str


@contextmanager
def fetched(
    source: PublishedFile, path: Path, lock: Lock | None, url: str | None = None, keep: bool = False
) -> Iterator[FileRecord]:
    """Yield the record of the file at `path`, whose digests are right; download it if need be.

    If the block, which opens the file, raises an error, a download is removed; else the record is
    added to the lock file. `url` is another address. `keep` leaves the digests beside the file.
    """
    address, remedy = url or source.url, source.remedy(path)
    if path.is_dir():
        raise OcmError(f"{path}: expected a file, found a folder; {remedy}")
    if address is None and not path.exists():
        raise OcmError(f"{path}: no such file, and no direct address is known; {remedy}")
    path.parent.mkdir(parents=True, exist_ok=True)
    # nothing is known of its digest, neither published nor recorded
    trusted = not (source.sha256 or source.md5 or (lock and _key(path) in lock.entries()))
    downloaded = False
    try:
        with alone_in(path.parent):
            if downloaded := not path.exists():
                download(str(address), path, remedy)
            record = _checked(source, path, lock, keep)
        if trusted:  # at least it must agree with its own CRCs
            refuse_damaged_zip(path, remedy)
        yield record
    except OcmError:
        if downloaded:
            path.unlink(missing_ok=True)
        raise
    if lock:
        if trusted:
            text = "its authors publish no digest. Its sha256 is now recorded: commit, and compare"
            LOG.warning("%s: taken on trust: %s %s with others", path, text, lock.path)
        lock.record(_key(path), record)


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _checked(source: PublishedFile, path: Path, lock: Lock | None, keep: bool) -> FileRecord:
    remedy, status, found = source.remedy(path), path.stat(), None
    note = path.with_name(f"{path.name}.checked.json")
    if keep and note.exists():
        with suppress(ValidationError):  # it only saves time
            found = TypeAdapter(CheckedFile).validate_json(note.read_bytes())
    if found is None or (found.bytes, found.mtime_ns) != (status.st_size, status.st_mtime_ns):
        refuse_web_page(path, "the published file", remedy)
        found = None
    if source.bytes not in (None, status.st_size):  # before hours of reading
        raise OcmError(f"{path}: expected bytes {source.bytes}, found {status.st_size}; {remedy}")
    checked = found or CheckedFile(status.st_size, status.st_mtime_ns, *_digests(path))
    for what in ("md5", "sha256"):
        expected, actual = getattr(source, what), getattr(checked, what)
        if expected not in (None, actual):
            raise OcmError(f"{path}: expected {what} {expected}, found {actual}; {remedy}")
    record = FileRecord(checked.sha256, checked.bytes)
    if lock and (known := lock.entries().get(_key(path), record)) != record:
        noted = f"sha256 {known.sha256} ({known.bytes} bytes) as recorded in {lock.path}"
        advice = f"{remedy}; if the file was replaced, delete the entry {_key(path)!r} of the lock"
        raise OcmError(f"{path}: expected {noted}, found {record.sha256}; {advice}")
    if keep and found is None:
        write_text(note, json.dumps(asdict(checked)))
    return record


def _digests(path: Path) -> list[str]:
    """Return the sha256 and the md5 of a file, from one pass."""
    digests = [hashlib.sha256(), hashlib.md5(usedforsecurity=False)]
    bar = byte_bar(f"digest of {path.name}", path.stat().st_size)
    with path.open("rb") as file, bar:
        while chunk := file.read(1 << 22):
            for digest in digests:
                digest.update(chunk)
            bar.update(len(chunk))
    return [digest.hexdigest() for digest in digests]


def download(url: str, path: Path, remedy: str) -> None:
    """Download to `<path>.part`, continuing an interrupted download, and rename it when whole."""
    part, version = (path.with_name(path.name + end) for end in (".part", ".part.version"))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        parts = urlsplit(url)
        if parts.scheme == "file":
            shutil.copyfile(unquote(parts.path), part)
        elif parts.scheme in SCHEMES:
            _transfer(url, part, version)
        else:
            raise ValueError(f"expected a URL that begins with {', '.join(SCHEMES)}")
    except Exception as error:  # requests tells of bad answers in more ways than it documents
        if part.exists() and not part.stat().st_size:
            part.unlink()
        status = getattr(getattr(error, "response", None), "status_code", None)
        why = f"status {status}" if status else redacted(reason(error))
        text = f"could not be had from {redacted(url)} ({why}); run it again, or {remedy}"
        raise OcmError(f"{path}: {text}") from None
    part.replace(path)
    version.unlink(missing_ok=True)


def _transfer(url: str, part: Path, version_file: Path) -> None:
    """Continue `part` if the server still has that version, by its ETag or date; else begin."""
    import pooch
    from requests import HTTPError

    headers = {"Accept-Encoding": "identity"}
    version = version_file.read_text("latin-1") if version_file.exists() else ""
    can_be_sent = version.strip() and version.isascii() and version.isprintable()
    start = part.stat().st_size if part.exists() and can_be_sent else 0
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": version}

    def look_at_head(response: Any, **_: object) -> None:
        """Check the head of the answer, before its body is written to the file."""
        if not response.ok or response.is_redirect:
            return
        length = response.headers.get("Content-Length", "0")
        if not length.isdecimal():
            raise OSError(f"the server states a length of {length!r}; expected a number of bytes")
        if response.status_code != _PARTIAL_CONTENT:
            file.truncate(0)
            new = response.headers.get("ETag", "")
            if not new or new.startswith("W/"):  # RFC 9110 forbids weak ones in If-Range
                new = response.headers.get("Last-Modified", "")
            version_file.write_text(new, "utf-8")
            return
        sent = response.headers.get("Content-Range", "")
        rest = fullmatch(rf"bytes {start}-(\d{{1,15}})/(\d{{1,15}}|\*)", sent)
        if not start or not rest or rest[2] not in ("*", str(int(rest[1]) + 1)):
            raise OSError(f"asked for the bytes from {start} on, got {sent or 'unnamed ones'}")

    with part.open("ab") as file, byte_bar(part.stem) as bar:
        options = {"headers": headers, "hooks": {"response": look_at_head}}
        get = pooch.HTTPDownloader(bar, 1 << 16, timeout=SECONDS_OF_SILENCE, **options)
        try:
            get(url, file, None)
        except HTTPError as error:
            answered = getattr(error.response, "status_code", None)
            if not start or answered != _RANGE_NOT_SATISFIABLE:
                raise
            part.unlink()  # the server has no bytes after it, so it is no part of this file
            _transfer(url, part, version_file)


def google_drive(file_id: str) -> str:
    """Return the address of the file itself: a sharing link leads to a web page."""
    return f"https://drive.usercontent.google.com/download?id={file_id}&export=download&confirm=t"


def redacted(url: str) -> str:
    """Return the address for messages: no user, no password, no keys in the query."""
    return sub(_SECRET, r"\1...", sub(_USER, "", url), flags=IGNORECASE)


def byte_bar(description: str, total: int = 1) -> tqdm[Any]:
    """Return a progress bar in bytes, which shows on a terminal only."""
    return tqdm(desc=description, total=total, unit="B", unit_scale=True, disable=None, leave=False)
