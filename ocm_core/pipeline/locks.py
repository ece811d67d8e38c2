"""Who may touch an artifact: one process makes it, many read it, none reads while it is exchanged.

The system frees a lock when its process ends, however it ends: after a kill nothing is left to
unlock. A job holds the right to make its artifact before it asks for its inputs, and waits only for
jobs further down the graph, so that no two wait for each other.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ocm_core.errors import OcmError

LOG = logging.getLogger("ocm")


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Be the only one that makes the artifact; another run that is at it is waited for."""
    said = "another run is making it; waiting for that one to end"
    with _held(folder, "making", fcntl.LOCK_EX, said):
        yield


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Read the artifact, as many others may: it stays as it is."""
    said = "another run is putting a new one in its place; waiting for that"
    with _held(folder, "content", fcntl.LOCK_SH, said):
        yield


@contextmanager
def exchanging(folder: Path) -> Iterator[None]:
    """Put something else in the artifact's place, once nobody reads it."""
    said = "a new one is made, but another run reads the old one; waiting for that one to end"
    with _held(folder, "content", fcntl.LOCK_EX, said):
        yield


@contextmanager
def _held(folder: Path, right: str, kind: int, said: str) -> Iterator[None]:
    stage = folder.parent
    if kind == fcntl.LOCK_SH and stage.parent.is_dir() and not os.access(stage.parent, os.W_OK):
        yield  # on a disk that nobody writes to from here
        return
    file = stage.parent / ".locks" / f"{stage.name}-{folder.name}.{right}"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:
        try:
            fcntl.flock(stream, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            LOG.warning("%s: %s", folder, said)
            fcntl.flock(stream, kind)
        except OSError as error:
            raise OcmError(
                f"{file.parent}: this file system has no locks ({error.strerror}): two "
                "jobs would write one artifact; put the folder on one that has (NFS 4, or "
                "Lustre mounted with `flock`)"
            ) from None
        yield
