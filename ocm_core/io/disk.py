"""Room on the disk: asked for before a long piece of work, and named when it runs out."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from ocm_core.errors import OcmError

FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEDY = (
    "make room, look at your quota or put the folder on another disk, and run again: what is "
    "finished is kept"
)


def check_space(path: Path, needed: int) -> None:
    """Refuse to begin what will not fit on the disk that holds `path`."""
    place, free = _disk(path)
    if needed > free:
        raise OcmError(
            f"{path}: {_size(needed)} are still to be written, and the disk of {place} has "
            f"{_size(free)} free; {_REMEDY}"
        )


@contextmanager
def room_for(path: Path, needed: int | None = None) -> Iterator[None]:
    """A disk that is full says which one it is, what was to be written there and what is free."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = _full(error)
        if reason is None:
            raise
        path = Path(getattr(error, "filename", None) or path)
        place, free = _disk(path)
        wanted = "" if needed is None else f"{_size(needed)} were to be written, and "
        raise OcmError(
            f"{path}: {reason}; {wanted}the disk of {place} has {_size(free)} free; {_REMEDY}"
        ) from error


def _full(error: OSError | SafetensorError) -> str | None:
    """What the system says of a full disk; safetensors hands on no more than its words."""
    if isinstance(error, OSError):
        return error.strerror if error.errno in FULL else None
    codes = {f"(os error {code})" for code in FULL}
    return str(error) if any(code in str(error) for code in codes) else None


def _disk(path: Path) -> tuple[Path, int]:
    """The nearest folder that exists, and what is free on its disk."""
    place = next(place for place in (path, *path.absolute().parents) if place.is_dir())
    return place.resolve(), shutil.disk_usage(place).free


def _size(count: int) -> str:
    return f"{count:,} bytes ({count / 1e9:.1f} GB)"
