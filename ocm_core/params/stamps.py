"""The head of a generated file: a digest of each file that it was made from, and of itself.

To compose parameters takes seconds, to compare digests none. So whoever reads a generated file,
every job included, first sees whether it is still what `params/` says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ocm_core.project import located

ITSELF = "what follows"
_WHOLE, _PIECES, _PIECE = 8 << 20, 64, 1 << 16  # bytes, and how many pieces of a larger file
STAMP = re.compile(rb"# ([0-9a-f]{16}) (.+)\n")


Digests = Mapping[Path, str]


def digests(files: Iterable[Path]) -> Digests:
    """To be asked before the files are read: an edit while they are being read is then seen."""
    return {file: _digest_of(located(file)) for file in files}


def stamped(said: str, origins: Digests, body: str) -> str:
    """`body` under a comment that says what it is, and what it was made from."""
    stamps = {file.as_posix(): digest for file, digest in origins.items()}
    stamps[ITSELF] = _digest(body.encode())
    lines = [f"# {said}", *(f"# {digest} {name}" for name, digest in stamps.items())]
    return "\n".join([*lines, body])


def edited(file: Path) -> list[Path]:
    """What is not as it was when `file` was made: files that it was made from, or itself."""
    if not file.is_file():
        return [file]
    origins, body_is_whole = _parse(file.read_bytes())
    if not body_is_whole:
        return [file]
    return [
        origin
        for origin, digest in origins.items()
        if not (there := located(origin)).is_file() or _digest_of(there) != digest
    ]


def _digest_of(file: Path) -> str:
    """Of a large file (weights), of its size and of pieces that are spread over it.

    Another training changes every piece; the stage that reads the weights compares all of them.
    """
    size = file.stat().st_size
    if size <= _WHOLE:
        return _digest(file.read_bytes())
    pieces = [str(size).encode()]
    with file.open("rb") as opened:
        for place in range(_PIECES):
            opened.seek(place * (size - _PIECE) // (_PIECES - 1))
            pieces.append(opened.read(_PIECE))
    return _digest(b"".join(pieces))


def made_from(text: str) -> list[Path]:
    """The files that are named at the head of a generated text."""
    return list(_parse(text.encode())[0])


def _parse(content: bytes) -> tuple[Digests, bool]:
    """The files with their digests, and whether what follows is as it was written."""
    _, _, content = content.partition(b"\n")
    stamps: dict[str, str] = {}
    while ITSELF not in stamps and (found := STAMP.match(content)):
        stamps[found[2].decode(errors="replace")] = found[1].decode()
        content = content[found.end() :]
    whole = stamps.pop(ITSELF, None) == _digest(content)
    return {Path(name): digest for name, digest in stamps.items()}, whole


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
