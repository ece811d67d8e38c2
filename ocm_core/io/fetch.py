"""Fetch published files: take the one at hand or download it, and check it before it is opened.

Most authors publish no sha256. The first fetch that succeeds records one in a lock file
(`checkpoints.lock.json`, `datasets.lock.json`), which is committed; from then on a file that
differs is refused. A download that is refused is removed; a file put there by hand is not.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from re import IGNORECASE, fullmatch, sub
from typing import IO, Any
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import TypeAdapter, ValidationError
from tqdm import tqdm

from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.io.checksums import FileRecord
from ocm_core.io.reading import reason

LOCK_FILE = Path("checkpoints.lock.json")
SCHEMES = ("file", "http", "https")
SECONDS_OF_SILENCE = 60
LOG = logging.getLogger("ocm")

_CHUNK = 1 << 16
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_PAGE_HEAD = 512  # bytes that are read to tell a web page
_USER = r"(?<=//)[^/?#]*@"  # user:password@ behind the scheme
_SECRET = r"((?:^|[?&;])[^=&;#]*(?:key|pass|secret|sig|token|credential)[^=&;#]*=)[^&;#]*"


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file that its authors offer; None where no page states a fact."""

    file: str
    page: str  # where the authors point to the file
    url: str | None = None
    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None
    note: str = ""

    def remedy(self, path: Path) -> str:
        """Say what a user can do when the file at `path` is missing or wrong."""
        note = f" ({self.note})" if self.note else ""
        address = f"{self.url}, linked from {self.page}" if self.url else self.page
        return f"fetch it by hand from {address}{note}, and put it at {path}"


@dataclass(frozen=True)
class Lock:
    """A lock file: the record that each published file had when it was first fetched."""

    path: Path = LOCK_FILE

    def recorded(self, key: str) -> FileRecord | None:
        """Return the record of `folder/file`, or None if there is none yet."""
        return self._entries().get(key)

    def record(self, key: str, record: FileRecord) -> None:
        """Add a record; several processes may do so at a time."""
        with alone_in(self.path.parent):
            entries = self._entries()
            if entries.get(key) == record:
                return
            values = {name: asdict(entry) for name, entry in (entries | {key: record}).items()}
            write_text(self.path, json.dumps(values, indent=2, sort_keys=True) + "\n")

    def check(self, key: str, record: FileRecord, path: Path, remedy: str) -> None:
        """Refuse a file that differs from its record."""
        expected = self.recorded(key)
        if expected is None or expected == record:
            return
        raise OcmError(
            f"{path}: expected sha256 {expected.sha256} ({expected.bytes} bytes) as recorded in"
            f" {self.path}, found {record.sha256} ({record.bytes} bytes); {remedy}; if the authors"
            f" have replaced their file, delete the entry {key!r} from {self.path}"
        )

    def _entries(self) -> dict[str, FileRecord]:
        if not self.path.exists():
            return {}
        if self.path.is_dir():
            raise OcmError(f"{self.path}: expected a file, found a folder; remove it")
        try:
            return TypeAdapter(dict[str, FileRecord]).validate_json(self.path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise OcmError(
                f"{self.path}: expected sha256 and bytes by name and file ({first['msg']});"
                " restore it from git"
            ) from None


@contextmanager
def fetched(
    source: PublishedFile, path: Path, lock: Lock | None, url: str | None = None
) -> Iterator[FileRecord]:
    """Yield the record of the file at `path`, whose digests are right; download it if need be.

    The block opens the file. If it raises, a download is removed; else the record is added to the
    lock file, with a warning if nothing was known about the file before. `url` is another address
    of the same file. Without a lock, for files made on this machine, nothing is recorded.
    """
    address, remedy = url or source.url, source.remedy(path)
    if path.is_dir():
        raise OcmError(f"{path}: expected a file, found a folder; {remedy}")
    if address is None and not path.exists():
        raise OcmError(f"{path}: no such file, and no direct address is known; {remedy}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_in(path.parent):
        downloaded = not path.exists()
        if downloaded:
            download(str(address), path, remedy)
    try:
        record = _checked(source, path, lock)
        yield record
    except OcmError:
        if downloaded:
            path.unlink(missing_ok=True)
        raise
    if lock is not None:
        _record(source, path, lock, record)


def on_trust(source: PublishedFile, path: Path, lock: Lock | None) -> bool:
    """Tell whether no digest of the file is known, neither published nor recorded."""
    recorded = lock and lock.recorded(_key(path))
    return not (source.sha256 or source.md5 or recorded)


def download(url: str, path: Path, remedy: str) -> None:
    """Download to `<path>.part`, continuing an interrupted download, and rename it when whole."""
    parts = _split_url(url)
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if parts.scheme == "file":
            shutil.copyfile(unquote(parts.path), part)
        else:
            _Transfer(part).run(url)
    except Exception as error:  # requests tells of bad answers in more ways than it documents
        if part.exists() and not part.stat().st_size:
            part.unlink()
        host = parts.netloc.rpartition("@")[2] or redacted(url)
        raise OcmError(
            f"{path}: could not be had from {host} ({_reason(error)}); run it again, or {remedy}"
        ) from None
    part.replace(path)
    _Transfer(part).version_file.unlink(missing_ok=True)


def google_drive(file_id: str) -> str:
    """Return the address of the file itself: a sharing link leads to a web page."""
    return f"https://drive.usercontent.google.com/download?id={file_id}&export=download&confirm=t"


def refuse_web_page(path: Path, expected: str, remedy: str) -> None:
    """Refuse a page that a server sent in place of the file, such as a sign-in."""
    with path.open("rb") as file:
        if file.read(_PAGE_HEAD).lstrip().startswith(b"<"):
            raise OcmError(
                f"{path}: expected {expected}, found a web page (a quota notice or a sign-in, as a"
                f" rule); {remedy}"
            )


def redacted(url: str) -> str:
    """Return the address for messages: no user, no password, no keys in the query."""
    return sub(_SECRET, r"\1...", sub(_USER, "", url), flags=IGNORECASE)


def byte_bar(description: str, total: int = 1) -> tqdm[Any]:
    """Return a progress bar in bytes, which shows on a terminal only."""
    hidden = not sys.stderr.isatty()
    return tqdm(
        desc=description, total=total, unit="B", unit_scale=True, disable=hidden, leave=False
    )


def _checked(source: PublishedFile, path: Path, lock: Lock | None) -> FileRecord:
    import pooch

    remedy = source.remedy(path)
    refuse_web_page(path, "the published file", remedy)
    record = FileRecord.of(path)
    facts = [
        ("bytes", source.bytes, record.bytes),
        ("sha256", source.sha256, record.sha256),
        ("md5", source.md5, source.md5 and pooch.file_hash(path, "md5")),
    ]
    for what, expected, actual in facts:
        if expected is not None and expected != actual:
            raise OcmError(f"{path}: expected {what} {expected}, found {actual}; {remedy}")
    if lock is not None:
        lock.check(_key(path), record, path, remedy)
    return record


def _record(source: PublishedFile, path: Path, lock: Lock, record: FileRecord) -> None:
    trusted = on_trust(source, path, lock)
    lock.record(_key(path), record)
    if trusted:
        LOG.warning(
            "%s: taken on trust: its authors publish no digest. Its sha256 is now recorded in %s:"
            " commit that file, and compare with someone who has fetched it too",
            path,
            lock.path,
        )


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


class _Transfer:
    """A download by pooch that continues the file `part`, if the server still has that version."""

    def __init__(self, part: Path) -> None:
        self.part = part
        self.version_file = part.with_name(f"{part.name}.version")  # ETag or date

    def run(self, url: str) -> None:
        start, headers = self._resume_headers()
        with self.part.open("ab") as file, byte_bar(self.part.stem) as bar:
            import pooch
            from requests import HTTPError

            get = pooch.HTTPDownloader(
                progressbar=bar,
                chunk_size=_CHUNK,
                timeout=SECONDS_OF_SILENCE,
                headers=headers,
                hooks={"response": lambda response, **_: self._begin(response, file, start)},
            )
            try:
                get(url, file, None)
                return
            except HTTPError as error:
                if not start or _status(error) != _RANGE_NOT_SATISFIABLE:
                    raise
        self.part.unlink()  # the server has no bytes after it, so it is no part of this file
        self.run(url)

    def _resume_headers(self) -> tuple[int, dict[str, str]]:
        headers = {"Accept-Encoding": "identity"}
        start = self.part.stat().st_size if self.part.exists() else 0
        version = self.version_file.read_text("latin-1") if self.version_file.exists() else ""
        if not start or not _is_plain(version):
            return 0, headers
        return start, headers | {"Range": f"bytes={start}-", "If-Range": version}

    def _begin(self, response: Any, file: IO[bytes], start: int) -> None:
        """Look at the head of the answer, before its body is written to the file."""
        headers: Mapping[str, str] = response.headers
        if not response.ok or response.is_redirect:
            return
        length = headers.get("Content-Length", "0")
        if not length.isdecimal():
            raise OSError(f"the server states a length of {length!r}; expected a number of bytes")
        if response.status_code == _PARTIAL_CONTENT:
            _check_range(headers.get("Content-Range", ""), start)
        else:
            file.truncate(0)
            self._write_version(headers)

    def _write_version(self, headers: Mapping[str, str]) -> None:
        """Keep a strong ETag or a date: RFC 9110 forbids weak ETags in If-Range."""
        tag = headers.get("ETag", "")
        version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
        self.version_file.write_text(version if _is_plain(version) else "")


def _check_range(sent: str, start: int) -> None:
    """Refuse an answer that is not the rest of the file, from `start` on."""
    match = fullmatch(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)", sent)
    first, last, total = match.groups() if match else ("", "", "")
    if not start or first != str(start) or total not in ("*", str(int(last) + 1)):
        raise OSError(f"asked for the bytes from {start} on, got {sent or 'unnamed ones'}")


def _is_plain(version: str) -> bool:
    """Tell whether the text can be sent as a header."""
    return bool(version.strip()) and version.isascii() and version.isprintable()


def _split_url(url: str) -> SplitResult:
    """Return the parts of an address that can be downloaded from."""
    expected = f"expected a URL that begins with {', '.join(SCHEMES)}"
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed only now, and it may be no number
    except ValueError:
        raise OcmError(f"{redacted(url)}: {expected}, with a host and a port that exist") from None
    if parts.scheme not in SCHEMES:
        raise OcmError(f"{redacted(url)}: {expected}")
    return parts


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _reason(error: Exception) -> str:
    status = _status(error)
    return f"status {status}" if status else redacted(reason(error))
