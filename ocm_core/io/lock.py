"""Lock files: the digest that each published file had when it was first fetched.

Most authors publish no sha256. The first fetch that succeeds records one, the lock file
(`checkpoints.lock.json`, `datasets.lock.json`) is committed, and then a file that differs is
refused before anything opens it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ocm_core.errors import OcmError
from ocm_core.io.atomic import alone_in, write_text
from ocm_core.io.digests import sha256_of

LOCK_FILE = Path("checkpoints.lock.json")


@dataclass(frozen=True)
class FileRecord:
    sha256: str
    bytes: int

    @classmethod
    def of(cls, path: Path) -> FileRecord:
        return cls(sha256_of(path), path.stat().st_size)


@dataclass(frozen=True)
class Lock:
    path: Path = LOCK_FILE

    def recorded(self, key: str) -> FileRecord | None:
        return self._entries().get(key)

    def record(self, key: str, found: FileRecord) -> None:
        with alone_in(self.path.parent):  # files may be fetched by several processes at a time
            entries = self._entries()
            if entries.get(key) == found:
                return
            values = {name: asdict(entry) for name, entry in (entries | {key: found}).items()}
            write_text(self.path, json.dumps(values, indent=2, sort_keys=True) + "\n")

    def check(self, key: str, found: FileRecord, path: Path, remedy: str) -> None:
        expected = self.recorded(key)
        if expected is None or expected == found:
            return
        raise OcmError(
            f"{path}: expected sha256 {expected.sha256} ({expected.bytes} bytes) as recorded in"
            f" {self.path}, found {found.sha256} ({found.bytes} bytes); {remedy}; if the authors"
            f" have replaced their file, delete the entry {key!r} from {self.path}"
        )

    def _entries(self) -> dict[str, FileRecord]:
        if not self.path.exists():
            return {}
        if self.path.is_dir():
            raise OcmError(f"{self.path}: expected a file, found a folder; remove it")
        try:
            return TypeAdapter(dict[str, FileRecord]).validate_json(self.path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise OcmError(
                f"{self.path}: expected sha256 and bytes by name and file ({first['msg']});"
                " restore it from git"
            ) from None
