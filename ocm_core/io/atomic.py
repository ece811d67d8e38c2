"""Files and folders that more than one process may look at while they are written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, whose content becomes the file when the block ends.

    A reader sees the old file or the new one, also after a crash; if the block raises, the old one
    stays. The temporary name is always the same, so that the next run overwrites what a killed one
    left: two processes must not write the same file at the same time.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = _ordinary_mode(temporary)
    try:
        yield temporary
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """In UTF-8, whole or not at all."""
    write_bytes(path, text.encode())


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is in a block like this one with the same folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _ordinary_mode(path: Path) -> int:
    """The permissions that a new file gets here: asking for the umask would change it."""
    path.unlink(missing_ok=True)
    path.touch()
    mode = path.stat().st_mode & 0o777
    path.unlink()
    return mode
