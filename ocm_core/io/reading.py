"""Guards for every file that comes from outside, and the format that its first bytes show.

Parsers report damage in dozens of ways (struct.error, KeyError, RecursionError, MemoryError, ...),
and no list of them is complete. So the call that parses, and nothing else, stands inside `reading`;
what it returns is then checked for types and sizes before it is used.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ocm_core.errors import OcmError, shortened

ZIP, PICKLE, GZIP = b"PK\x03\x04", b"\x80", b"\x1f\x8b"
_LONGEST_REASON = 1000  # characters of a library's message
_MOST_JSON = 16 << 20  # bytes; configurations have a few thousand
_TAR_MARK, _TAR_AT = b"ustar", 257
_HEAD = 512
_EXPECTED = {  # by the end of the name
    (".pt", ".pth", ".ckpt"): "a PyTorch file",
    (".zip", ".npz"): "a zip file",
    (".gz", ".tgz"): "a gzip file",
    (".tar",): "a tar file",
    (".json",): "a JSON file",
    (".safetensors",): "a safetensors file",
}


@contextmanager
def reading(where: object, expected: str, remedy: str) -> Iterator[None]:
    """Turn whatever a library raises on bytes that it cannot read into one error."""
    try:
        yield
    except OcmError:
        raise
    except Exception as error:
        raise OcmError(
            f"{where}: expected {expected}, found something else ({reason(error)}); {remedy}"
        ) from error


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


def unlike_its_name(path: Path) -> str | None:
    """Return how the first bytes contradict the file's suffix, or None if they do not."""
    if path.is_dir():
        return "expected a file, found a folder"
    expected = next((what for ends, what in _EXPECTED.items() if path.name.endswith(ends)), None)
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if expected is None or _is(expected, head, path):
        return None
    return f"expected {expected}, found something else"


def _is(expected: str, head: bytes, path: Path) -> bool:
    match expected:
        case "a PyTorch file":
            return head.startswith(PICKLE) or zipfile.is_zipfile(path)
        case "a zip file":
            return zipfile.is_zipfile(path)
        case "a gzip file":
            return head.startswith(GZIP)
        case "a tar file":
            return head[_TAR_AT:].startswith(_TAR_MARK)
        case "a JSON file":
            return head.lstrip().startswith((b"{", b"["))
        case _:
            return head[8:9] == b"{"


def refuse_damaged_zip(path: Path, remedy: str) -> None:
    """Check the CRC of every member of a zip: half a minute for a few gigabytes."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as opened:
            damaged = opened.testzip()
    except Exception as error:  # zipfile reports damage in half a dozen ways
        raise OcmError(f"{path}: expected a whole zip, found a damaged one; {remedy}") from error
    if damaged is not None:
        raise OcmError(f"{path}: the CRC of {damaged!r} is not that of its bytes; {remedy}")
