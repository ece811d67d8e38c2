"""Downloads that can be resumed: into `<file>.part`, renamed to `<file>` when it is complete."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tqdm import tqdm

from ocm_core.errors import OcmError
from ocm_core.io.reading import reason
from ocm_core.io.urls import redacted, request, split_url

CHUNK = 1 << 20
SECONDS_OF_SILENCE = 60
PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE = 206, 416
LONGEST_NUMBER = 15  # digits of a length: petabytes
_HEAD = 512  # bytes that are read to tell a web page

ByteProgress = Callable[[int, int | None], None]  # bytes so far, and in all if known


def google_drive(file_id: str) -> str:
    """The address of the file itself: a sharing link leads to a web page."""
    return f"https://drive.usercontent.google.com/download?id={file_id}&export=download&confirm=t"


def download(url: str, path: Path, remedy: str, progress: ByteProgress | None = None) -> str:
    """Fetch `url` to `path` and return its sha256; continue what an earlier call began."""
    place = split_url(url).netloc.rpartition("@")[2] or redacted(url)
    part = _Part(path)
    try:
        digest = _transfer(url, part, progress or _silent)
    except Exception as error:  # http.client tells of bad answers in more ways than it says
        raise OcmError(
            f"{path}: could not be had from {place} ({_reason(error)}); {remedy}"
        ) from None
    part.finish()
    return digest


def refuse_web_page(path: Path, expected: str, remedy: str) -> None:
    """Servers answer with a page where they want a sign-in, and it is saved as the file."""
    with path.open("rb") as file:
        if file.read(_HEAD).lstrip().startswith(b"<"):
            raise OcmError(
                f"{path}: expected {expected}, found a web page (a quota notice or a sign-in, as a"
                f" rule); {remedy}"
            )


@contextmanager
def byte_bar(description: str) -> Iterator[ByteProgress]:
    """Progress in bytes: as a bar on a terminal, not at all elsewhere."""
    silent = not sys.stderr.isatty()
    with tqdm(desc=description, unit="B", unit_scale=True, disable=silent, leave=False) as bar:

        def show(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show


class _Part:
    """The unfinished file, and the server's name for its version (ETag or date)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.with_name(f"{path.name}.part")
        self.mark = path.with_name(f"{path.name}.part.version")

    @property
    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def request_headers(self) -> dict[str, str]:
        if not self.size:
            return {}
        version = {"If-Range": _plain(self.mark.read_text("latin-1"))} if self.mark.exists() else {}
        return {"Range": f"bytes={self.size}-", **version}

    def begin(self, version: str | None) -> None:
        self.discard()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if version:
            self.mark.write_text(version)

    def discard(self) -> None:
        self.file.unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)

    def finish(self) -> None:
        self.file.replace(self.path)
        self.mark.unlink(missing_ok=True)


def _transfer(url: str, part: _Part, progress: ByteProgress) -> str:
    with _opened(url, part) as response:
        start = part.size
        if not _continues(response, start):
            part.begin(_version(response.headers))
            start = 0
        length = _length(response.headers)
        total = None if length is None else start + length
        digest = hashlib.sha256()
        with part.file.open("ab+") as file:
            _read_back(file, digest.update)
            _append(response, file, digest.update, lambda done: progress(done, total))
    if total is not None and part.size != total:
        raise OSError(f"the connection ended after {part.size} of {total} bytes; run it again")
    return digest.hexdigest()


def _continues(response: Any, start: int) -> bool:
    """Whether the server sends the rest of the file, and not the whole."""
    if getattr(response, "status", None) != PARTIAL_CONTENT:
        return False
    offset = _header(response.headers, "Content-Range") or ""
    if not offset.startswith(f"bytes {start}-"):
        raise OSError(f"asked for the bytes from {start} on, got {offset or 'unnamed ones'}")
    return True


def _opened(url: str, part: _Part) -> Any:
    try:
        return urlopen(request(url, part.request_headers()), timeout=SECONDS_OF_SILENCE)
    except HTTPError as error:
        if error.code != RANGE_NOT_SATISFIABLE:
            raise
        error.close()
    part.discard()  # the server has no bytes after it, so it is no part of this file
    return urlopen(request(url, {}), timeout=SECONDS_OF_SILENCE)


def _read_back(file: IO[bytes], consume: Callable[[bytes], None]) -> None:
    file.seek(0)
    while chunk := file.read(CHUNK):
        consume(chunk)


def _append(
    response: IO[bytes],
    file: IO[bytes],
    consume: Callable[[bytes], None],
    progress: Callable[[int], None],
) -> None:
    progress(file.tell())
    while chunk := response.read(CHUNK):
        file.write(chunk)
        consume(chunk)
        progress(file.tell())


def _version(headers: Any) -> str | None:
    """A strong ETag or a date: RFC 9110 forbids weak ETags in If-Range."""
    tag = _header(headers, "ETag")
    return tag if tag and not tag.startswith("W/") else _header(headers, "Last-Modified")


def _length(headers: Any) -> int | None:
    """Content-Length, which servers leave out where they do not know it."""
    stated = _header(headers, "Content-Length")
    if stated is None:
        return None
    if not stated.isascii() or not stated.isdigit() or len(stated) > LONGEST_NUMBER:
        raise OSError(f"the server states a length of {stated!r}; expected a number of bytes")
    return int(stated)


def _header(headers: Any, name: str) -> str | None:
    """Python gives other objects than strings for bytes that are not ASCII."""
    value = headers.get(name)
    return None if value is None else _plain(str(value))


def _plain(text: str) -> str:
    """What a header may hold."""
    return "".join(character for character in text if " " <= character <= "~")


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"status {error.code}"
    inner = getattr(error, "reason", error)
    return redacted(reason(inner if isinstance(inner, Exception) else error))


def _silent(done: int, total: int | None) -> None:
    pass
