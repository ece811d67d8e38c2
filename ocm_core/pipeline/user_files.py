"""Whether files of the user's are the same as before, without opening them.

Names and sizes go into manifests, which must not depend on a machine. Snakemake's own records have
times, too, which tell of an edit that keeps the size; the stage then looks at that file again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ocm_core.io.image_files import FileEntry, folder_entries


def listing(paths: Sequence[str], *, times: bool) -> str | None:
    """A digest of what lies there; None where there is nothing to tell, or it is elsewhere."""
    places = [Path(path).expanduser() for path in paths]
    if not places or not all(place.exists() for place in places):
        return None
    found = hashlib.sha256()
    for entry in (entry for place in places for entry in _entries(place)):
        told = entry if times else entry[:2]
        found.update(f"{told}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def _entries(place: Path) -> Iterator[FileEntry]:
    if place.is_dir():
        yield from sorted(folder_entries(place))
    else:
        known = place.stat()
        yield FileEntry(place.name, known.st_size, known.st_mtime_ns)
