"""The files of a commit, and those of the working tree, read the same way."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ocm_core.errors import OcmError
from ocm_core.io.reading import reading

REMEDY = "restore it, or compare another revision"


class Revision(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def runs_here(self) -> bool:
        """Whether its sources are those of this process."""

    def files(self, folder: str) -> list[str]:
        """The paths directly in `folder`, sorted; none where there is no such folder."""

    def read(self, path: str) -> str:
        """A file of text."""


@dataclass(frozen=True)
class WorkingTree:
    root: Path
    name: str = "working tree"
    runs_here: bool = True

    def files(self, folder: str) -> list[str]:
        found = (path for path in (self.root / folder).glob("*") if path.is_file())
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def read(self, path: str) -> str:
        return _decoded((self.root / path).read_bytes(), f"{path} of {self.name}")


@dataclass(frozen=True)
class Commit:
    root: Path
    name: str
    id: str
    runs_here: bool = False

    def files(self, folder: str) -> list[str]:
        listed = _git(self.root, "ls-tree", "--name-only", "-z", self.id, f"{folder}/")
        return os.fsdecode(listed).split("\0")[:-1]

    def read(self, path: str) -> str:
        content = _git(self.root, "show", f"{self.id}:./{path}")
        return _decoded(content, f"{path} of {self.name}")


def commit(root: Path, name: str) -> Commit:
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    try:
        return Commit(root, name, _git(root, *asked).decode().strip())
    except OcmError:
        raise OcmError(
            f"revision {name!r}: Git knows no such commit, tag or branch in {root}; "
            "`git log --oneline --all` lists them (a shallow clone needs `git fetch --unshallow`)"
        ) from None


def _decoded(content: bytes, where: str) -> str:
    with reading(where, "text in UTF-8", REMEDY):
        return content.decode()


def _git(root: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=True)
    except FileNotFoundError:
        raise OcmError("git: not installed; commits cannot be compared without it") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise OcmError(f"`git {' '.join(arguments)}` failed: {said}") from None
    return done.stdout
