"""Guards for every file that comes from outside, and the format that its first bytes show.

Parsers report damage in dozens of ways. So the call that parses stands inside `reading`, and what
it returns is checked for types and sizes before it is used.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from re import search
from typing import Any
from zipfile import ZipFile, is_zipfile

from ocm_core.errors import OcmError, shortened

ZIP, PICKLE, GZIP = b"PK\x03\x04", b"\x80", b"\x1f\x8b"
_LONGEST_REASON = 1000  # characters of a library's message
_MOST_JSON = 16 << 20  # bytes; configurations have a few thousand
_HEAD = 512  # bytes
_FORMATS: dict[tuple[str, ...], tuple[str, Callable[[bytes, Path], bool]]] = {
    (".pt", ".pth", ".ckpt"): ("a PyTorch file", lambda h, p: h[:1] == PICKLE or is_zipfile(p)),
    (".zip", ".npz"): ("a zip file", lambda _, path: is_zipfile(path)),
    (".gz", ".tgz"): ("a gzip file", lambda head, _: head.startswith(GZIP)),
    (".tar",): ("a tar file", lambda head, _: head[257:].startswith(b"ustar")),
    (".json",): ("a JSON file", lambda head, _: head.lstrip().startswith((b"{", b"["))),
    (".safetensors",): ("a safetensors file", lambda head, _: head[8:9] == b"{"),
}  # by the end of the name


@contextmanager
def reading(where: object, expected: str, remedy: str) -> Iterator[None]:
    """Turn whatever a library raises on bytes that it cannot read into one error."""
    try:
        yield
    except OcmError:
        raise
    except Exception as error:
        found = f"found something else ({reason(error)})"
        raise OcmError(f"{where}: expected {expected}, {found}; {remedy}") from error


def reason(error: Exception) -> str:
    """Return a library's message on one line, shortened; or the name of the exception."""
    message = " ".join(str(error).split())
    return shortened(message, _LONGEST_REASON) or type(error).__name__


def read_json_object(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON file that holds an object of ordinary size."""
    with reading(path, "a JSON object", remedy):
        with path.open("rb") as file:
            content = file.read(_MOST_JSON + 1)
        if len(content) > _MOST_JSON:
            raise ValueError(f"more than {_MOST_JSON} bytes")
        value = json.loads(content)
        if not isinstance(value, dict):
            raise ValueError(f"a {type(value).__name__}")
    return value


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(_HEAD)


def unlike_its_name(path: Path) -> str | None:
    """Return how the first bytes contradict the file's suffix, or None if they do not."""
    if path.is_dir():
        return "expected a file, found a folder"
    for ends, (expected, agrees) in _FORMATS.items():
        if path.name.endswith(ends) and not agrees(head_of(path), path):
            return f"expected {expected}, found something else"
    return None


def refuse_web_page(path: Path, expected: str, remedy: str) -> None:
    """Refuse a page that a server sent in place of the file, such as a sign-in."""
    if head_of(path).lstrip().startswith(b"<"):
        found = "found a web page (a quota notice or a sign-in, as a rule)"
        raise OcmError(f"{path}: expected {expected}, {found}; {remedy}")


def refuse_damaged_zip(path: Path, remedy: str) -> None:
    """Check the CRC of every member of a zip: half a minute for a few gigabytes."""
    if not is_zipfile(path):
        return
    with reading(path, "a whole zip", remedy), ZipFile(path) as opened:
        damaged = opened.testzip()
    if damaged is not None:
        raise OcmError(f"{path}: the CRC of {damaged!r} is not that of its bytes; {remedy}")


def refuse_other_formats(path: Path, remedy: str) -> None:
    """Refuse a web page or half a download, by the first bytes."""
    refuse_web_page(path, "a PyTorch file", remedy)
    head = head_of(path)[:8]
    if head.startswith(ZIP):
        if not is_zipfile(path):
            raise OcmError(f"{path}: expected a whole PyTorch file, found its beginning; {remedy}")
    elif not head.startswith(PICKLE):
        raise OcmError(f"{path}: expected a PyTorch file, found {head!r} at its head; {remedy}")


def open_restricted(path: Path, remedy: str) -> object:
    """Load tensors in plain containers, memory-mapped if possible; any other pickle is refused."""
    import torch

    refuse_other_formats(path, remedy)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols: not our choice
            return torch.load(path, weights_only=True, map_location="cpu", mmap=is_zipfile(path))
    except UnpicklingError as error:
        named = search(r"GLOBAL (\S+)", str(error))
        found = f"a call for {named[1]}" if named else "pickle instructions that are not allowed"
        text = f"expected tensors in plain containers, found {found}; nothing in it was run"
        raise OcmError(f"{path}: {text}; {remedy}") from None
    except Exception as error:  # torch tells of damage in half a dozen ways
        found = f"found a damaged one ({type(error).__name__}: {reason(error)})"
        raise OcmError(f"{path}: expected a whole PyTorch file, {found}; {remedy}") from None
