"""What tar and zip files have in common: errors about damage, and folders of unpacked files."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from ocm_core.errors import OcmError
from ocm_core.io.archives import Located
from ocm_core.io.atomic import alone_in
from ocm_core.io.reading import reading

# Images hardly shrink: the published archives hold less than twice their own bytes. Small ones, as
# tests make them, may shrink more.
MOST_EXPANSION, ALWAYS_ALLOWED = 10, 64 << 20


def whole(path: Path) -> AbstractContextManager[None]:
    """Whatever a damaged archive raises becomes one error that names the file."""
    return reading(path, "a whole archive", "remove it and fetch it again")


def refuse_bomb(path: Path, unpacked_bytes: int) -> None:
    """Before anything is unpacked: a few kilobytes can fill a disk."""
    limit = max(MOST_EXPANSION * path.stat().st_size, ALWAYS_ALLOWED)
    if unpacked_bytes > limit:
        raise OcmError(
            f"{path}: would unpack to {unpacked_bytes} bytes or more; expected at most {limit}"
            f" ({MOST_EXPANSION} times the archive, or {ALWAYS_ALLOWED}): this is not the published"
            " file; remove it and fetch it again"
        )


def refuse_outside(path: Path, name: str) -> None:
    """A member must not be unpacked to a place outside of the folder."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise OcmError(
            f"{path}: the member {name!r} points outside of the archive; this is not the published"
            " file: remove it and fetch it again"
        )


def no_member(path: Path, name: str) -> OcmError:
    return OcmError(f"{path}: expected a member {name}, found none; is it the published file?")


def unpacked(archive: Located, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills from the archive: complete or not there, and made only once."""
    folder = archive.path.parent / "unpacked" / f"{archive.path.name}-{archive.sha256[:16]}"
    with alone_in(archive.path.parent):
        if not folder.exists():
            temporary = folder.with_name(f"{folder.name}.tmp")
            shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
            temporary.mkdir(parents=True)
            try:
                make(temporary)
                temporary.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder
