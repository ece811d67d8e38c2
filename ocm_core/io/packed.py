"""What is done with any archive: damage told in one way, names that lead outside refused, and
folders with what is unpacked from it, which are whole or not there."""

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
from ocm_core.io.archives import Located, alone_in

DAMAGE = (BadGzipFile, BadZipFile, EOFError, TarError, zlib.error)


@contextmanager
def whole(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise OcmError(
            f"{path}: expected a whole archive, found a damaged one ({error}); remove it and fetch"
            " it again"
        ) from None


def refuse_outside(path: Path, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise OcmError(
            f"{path}: the member {name!r} points outside of the archive; this is not the published"
            " file: remove it and fetch it again"
        )


def no_member(path: Path, name: str) -> OcmError:
    return OcmError(f"{path}: expected a member {name}, found none; is it the published file?")


def unpacked(archive: Located, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills from the archive, once for all processes and all times."""
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
