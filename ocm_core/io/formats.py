"""What a file is by its first bytes, and whether it is whole as far as it says so itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

from ocm_core.errors import OcmError

ZIP, PICKLE, GZIP = b"PK\x03\x04", b"\x80", b"\x1f\x8b"
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


def unlike_its_name(path: Path) -> str | None:
    """What was expected by the name and is not there; None where nothing speaks against it."""
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
    """By the CRC of every member, where the file is a zip: half a minute for a few gigabytes."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as opened:
            damaged = opened.testzip()
    except Exception as error:  # zipfile tells of damage in half a dozen ways
        raise OcmError(f"{path}: expected a whole zip, found a damaged one; {remedy}") from error
    if damaged is not None:
        raise OcmError(f"{path}: the CRC of {damaged!r} is not that of its bytes; {remedy}")
