"""What tar and zip files have in common: errors about damage, and folders of unpacked files."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from gzip import BadGzipFile
from pathlib import Path, PurePosixPath
from tarfile import TarError
from zipfile import BadZipFile

from ocm_core.errors import OcmError
from ocm_core.io.archives import Located
from ocm_core.io.atomic import alone_in

DAMAGE = (BadGzipFile, BadZipFile, EOFError, TarError, zlib.error)


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Whatever a damaged archive raises becomes one error that names the file."""
    try:
        yield
    except DAMAGE as error:
        raise OcmError(
            f"{path}: expected a whole archive, found a damaged one ({error}); remove it and fetch"
            " it again"
        ) from None


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
