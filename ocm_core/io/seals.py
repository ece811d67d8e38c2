"""Seals of finished pieces: the sha256 that a file had when an interrupted job had written it.

A piece is written once and becomes part of an artifact. Its seal is written after it, in a folder
beside it, and names what the piece is for: another content or another purpose breaks it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ocm_core.io.atomic import write_text
from ocm_core.io.digests import sha256_of

SEALS = ".sealed"

LOG = logging.getLogger("ocm")


def seal(file: Path, purpose: str = "") -> None:
    write_text(_seal_of(file), _text(sha256_of(file), purpose))


def intact(file: Path, purpose: str = "") -> bool:
    """Whether the file is there as it was sealed; says so if it has changed since."""
    if not file.is_file() or not _seal_of(file).is_file():
        return False
    same = _seal_of(file).read_bytes() == _text(sha256_of(file), purpose).encode()
    if not same:
        LOG.warning("%s: not as an interrupted run has written it; it is made again", file)
    return same


def broken(file: Path, sha256: str) -> bool:
    """Whether there is a seal, and it is of another content than this."""
    seal = _seal_of(file)
    return seal.is_file() and not seal.read_bytes().startswith(sha256.encode())


def mark(folder: Path, text: str) -> None:
    """Note beside a folder what it is for."""
    write_text(_seal_of(folder), text)


def mark_of(folder: Path) -> str | None:
    seal = _seal_of(folder)
    return seal.read_text(errors="replace") if seal.is_file() else None


def pieces(folder: Path) -> Iterator[Path]:
    """Every file below the folder, without the seals."""
    found = (path for path in folder.rglob("*") if not path.is_dir())
    return (path for path in sorted(found) if path.parent.name != SEALS)


def remove_unsealed(folder: Path) -> None:
    """Throw away what no job has finished: half-written files, and files of another origin."""
    for file in pieces(folder):
        if not _seal_of(file).is_file():
            file.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):  # what is inside comes first
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def remove_seals(folder: Path) -> None:
    """Those in the folder, and its own mark: nothing is left to resume."""
    for found in list(folder.rglob(SEALS)):
        shutil.rmtree(found)
    _seal_of(folder).unlink(missing_ok=True)
    with suppress(OSError):  # others have theirs there, or there never was any
        _seal_of(folder).parent.rmdir()


def _seal_of(file: Path) -> Path:
    return file.parent / SEALS / file.name


def _text(sha256: str, purpose: str) -> str:
    return f"{sha256} {purpose}\n"
