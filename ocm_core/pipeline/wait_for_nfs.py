"""Wait until all processes of a job see the same files of an interrupted run.

A shared disk may show a node what was there a minute ago. Each process reads its own state of a
training, and two that go on from different iterations would mix their gradients without a sign: so
the first process says what there is, and the others wait until they see the same.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from ocm_core.distributed import Rank
from ocm_core.errors import OcmError
from ocm_core.io.checksums import sha256_of

PATIENCE = 300.0  # seconds; NFS looks again after one minute


def await_first(rank: Rank, folder: Path, patience: float = PATIENCE) -> None:
    """Until this process sees the files of the folder as the first one does."""
    if rank.world_size == 1:
        return
    expected = rank.agreed(lambda: _seen(folder))
    deadline = time.monotonic() + patience
    while _seen(folder) != expected:
        if time.monotonic() > deadline:
            raise OcmError(
                f"{folder}: on {socket.gethostname()} other files than the first process sees, "
                f"even after {patience:.0f} s; the nodes need one file system: `ocm doctor --nodes`"
            )
        time.sleep(min(1.0, patience / 10))


def _seen(folder: Path) -> dict[str, str]:
    """Digests by path; a file that goes while it is looked at is none."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            try:
                found[path.relative_to(folder).as_posix()] = sha256_of(path)
            except OSError:
                continue
    return found
