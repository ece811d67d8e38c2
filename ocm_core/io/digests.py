"""Digests of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

_CHUNK = 1 << 22


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests_of(
    path: Path, *algorithms: str, progress: Callable[[int], None] | None = None
) -> tuple[str, ...]:
    """Several in one pass over the file; `progress` is told how many bytes have been read."""
    found = [hashlib.new(algorithm, usedforsecurity=False) for algorithm in algorithms]
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            for digest in found:
                digest.update(chunk)
            if progress:
                progress(file.tell())
    return tuple(digest.hexdigest() for digest in found)
