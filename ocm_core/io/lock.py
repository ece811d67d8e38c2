"""`checkpoints.lock.json`: what each published file was when it was first fetched.

Nobody publishes sha256 digests for these files. The first fetch that ends well records one, the
lock is committed, and from then on a file that differs is refused before anything opens it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ocm_core.errors import OcmError

LOCK_FILE = Path("checkpoints.lock.json")


@dataclass(frozen=True)
class Recorded:
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Lock:
    path: Path = LOCK_FILE

    def recorded(self, key: str) -> Recorded | None:
        return self._entries().get(key)

    def record(self, key: str, found: Recorded) -> None:
        with self._sole_writer():
            entries = self._entries()
            if entries.get(key) == found:
                return
            values = {name: asdict(entry) for name, entry in (entries | {key: found}).items()}
            temporary = self.path.with_name(f"{self.path.name}.tmp")
            temporary.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
            temporary.replace(self.path)

    def check(self, key: str, found: Recorded, path: Path, remedy: str) -> None:
        expected = self.recorded(key)
        if expected is None or expected == found:
            return
        raise OcmError(
            f"{path}: expected sha256 {expected.sha256} ({expected.bytes} bytes) as recorded in"
            f" {self.path}, found {found.sha256} ({found.bytes} bytes); {remedy}; if the authors"
            f" have replaced their file, delete the entry {key!r} from {self.path}"
        )

    @contextmanager
    def _sole_writer(self) -> Iterator[None]:
        """Checkpoints may be fetched side by side, and all of them write here."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _entries(self) -> dict[str, Recorded]:
        if not self.path.exists():
            return {}
        try:
            return TypeAdapter(dict[str, Recorded]).validate_json(self.path.read_text())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise OcmError(
                f"{self.path}: expected sha256 and bytes by name and file ({first['msg']});"
                " restore it from git"
            ) from None
