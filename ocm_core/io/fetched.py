"""Files that were just fetched: a refused one is not kept, and one taken on trust is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ocm_core.errors import OcmError
from ocm_core.io.lock import Lock


@contextmanager
def removed_if_refused(downloaded: Iterable[Path]) -> Iterator[None]:
    """Remove downloads that the block refuses: the next run fetches them anew."""
    try:
        yield
    except OcmError:
        for path in downloaded:
            path.unlink(missing_ok=True)
        raise


def taken_on_trust(lock: Lock) -> str:
    """What is said of a file whose digest nobody knew before."""
    return (
        "taken on trust: its authors publish no digest. The one that was found is now recorded in "
        f"{lock.path}: commit that file, and compare with someone who has fetched it too"
    )
