"""Files that are written whole or not at all, folders used by one process, room on the disk."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from ocm_core.errors import OcmError

if TYPE_CHECKING:
    from torch import Tensor

_FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEDY = "free some space or check your quota, and run again: finished work is kept"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that replaces it if the block ends without an error.

    The next run overwrites what a killed one left, so two processes must not write the same file.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.unlink(missing_ok=True)
    temporary.touch()
    mode = temporary.stat().st_mode & 0o777  # of any new file: asking for the umask changes it
    temporary.unlink()
    try:
        yield temporary
        temporary.chmod(mode)  # safetensors makes files that only their owner can read
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8, whole or not at all."""
    write_bytes(path, text.encode())


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file, whole or not at all."""
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    needed = sum(tensor.nbytes for tensor in plain.values())
    with room_for(path, needed), replacing(path) as temporary:
        save_file(plain, temporary, metadata)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a block with the same folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_space(path: Path, needed: int) -> None:
    """Raise an error if `needed` bytes do not fit on the disk that holds `path`."""
    said, free = _disk(path)
    if needed > free:
        raise OcmError(f"{path}: {_size(needed)} are still to be written; {said}")


@contextmanager
def room_for(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn a full disk into an error that names the disk, its free space and the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if isinstance(error, OSError):
            full, reason = error.errno in _FULL, error.strerror
        else:  # safetensors passes on the system's text only
            full, reason = any(f"(os error {n})" in str(error) for n in _FULL), str(error)
        if not full:
            raise
        path = Path(getattr(error, "filename", None) or path)
        wanted = "" if needed is None else f"{_size(needed)} were to be written; "
        raise OcmError(f"{path}: {reason}; {wanted}{_disk(path)[0]}") from error


def _disk(path: Path) -> tuple[str, int]:
    """Say which disk a path is on and what to do when it is full; return its free bytes too."""
    place = next(place for place in (path, *path.absolute().parents) if place.is_dir())
    free = shutil.disk_usage(place).free
    return f"the disk of {place.resolve()} has {_size(free)} free; {_REMEDY}", free


def _size(count: int) -> str:
    return f"{count:,} bytes ({count / 1e9:.1f} GB)"
