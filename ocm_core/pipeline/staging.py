"""How an artifact comes about: in a folder beside it, exchanged for the old one when it is whole.

    artifacts/digits/train/heads/trained             the artifact, or still the old one
    artifacts/digits/train/heads/.trained.staging    while a job works, and after an interruption
        key         digest of what the job makes: parameters, sources, inputs
        artifact/   becomes the artifact; finished files have checksums beside them
        state/      what an interrupted job resumes from, no part of the artifact
        outputs/    files that will lie elsewhere: the report's
        old/        during the exchange: the artifact that was

The same key resumes; any other starts from nothing. An exchange is two renames, between which a
kill may fall: whoever makes the artifact next first finishes it, or takes it back.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocm_core.io.atomic import replacing, room_for, write_text
from ocm_core.io.checksums import remove_records, remove_unfinished
from ocm_core.pipeline.artifacts import (
    MANIFEST,
    ROOT,
    Key,
    Manifest,
    Signature,
    changes,
    compare,
    folder_of,
    manifest_if_whole,
    signed,
    versions,
)
from ocm_core.pipeline.locks import exchanging
from ocm_core.pipeline.stage import Task

if TYPE_CHECKING:
    from ocm_core.pipeline.graph import Graph

LOG = logging.getLogger("ocm")
SUFFIX = ".staging"


@dataclass(frozen=True)
class Earlier:
    """The artifact that a new one replaces, whose unchanged pieces are taken over."""

    folder: Path
    manifest: Manifest

    def give(self, piece: str, key: str, target: Path) -> bool:
        """Put a piece into the folder `target` if it was made from the same and is whole."""
        names = [n for n in self.manifest.files if n == piece or n.startswith(f"{piece}/")]
        if self.manifest.pieces.get(piece) != key or not names:
            return False
        if any(changes({self.folder / name: self.manifest.files[name] for name in names})):
            return False
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            _link(self.folder / name, target / name)
        return True


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another device, or a file system without links
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class StagingFolder:
    """The staging folder of one artifact, for the process that holds the right to make it."""

    experiment: str
    task: Task
    key: Key

    @property
    def place(self) -> Path:
        """Where the artifact belongs."""
        return folder_of(self.experiment, self.task)

    @property
    def root(self) -> Path:
        return self.place.with_name(f".{self.place.name}{SUFFIX}")

    @property
    def artifact(self) -> Path:
        return self.root / "artifact"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def outputs(self) -> Path:
        """Holds files by the paths, relative to the project, where they are to lie."""
        return self.root / "outputs"

    @property
    def earlier(self) -> Earlier | None:
        manifest = manifest_if_whole(self.place)
        return None if manifest is None else Earlier(self.place, manifest)

    def prepare(self, planned: float) -> bool:
        """Return whether there is work to do; then `artifact` is ready for it.

        There is none if another run has made the artifact since this one was planned (a time, as
        files have it), or if an interrupted run had come so far that only the exchange is left.
        """
        with room_for(self.root):
            return self._prepare(planned)

    def _prepare(self, planned: float) -> bool:
        self._settle()
        if self._made_since(planned):
            LOG.info("%s: another run has made it in the meantime; nothing to do", self.place)
            self._discard()
            return False
        if not self._begun():
            self._report_loss()
            self._start()
        elif (self.artifact / MANIFEST).exists():
            if self._is_whole(self.artifact, self.outputs):
                self._exchange()
                return False
            LOG.warning("%s: not as its manifest says; it is made again", self.artifact)
            self._start()
        remove_unfinished(self.artifact)
        return True

    def finish(self, notes: Mapping[str, Any], pieces: Mapping[str, str]) -> None:
        """Sign what the job has written, and put it in the artifact's place."""
        signature = Signature(self.experiment, self.task, self.key, pieces, notes)
        staged = {
            path.relative_to(self.outputs).as_posix(): path
            for path in sorted(self.outputs.rglob("*"))
            if path.is_file()
        }
        manifest = signed(signature, self.artifact, staged)
        write_text(self.artifact / MANIFEST, manifest.text)
        self._exchange()

    def _made_since(self, planned: float) -> bool:
        manifest = self.place / MANIFEST
        if not manifest.exists() or manifest.stat().st_mtime < planned:
            return False
        return self._is_whole(self.place, Path())

    def _begun(self) -> bool:
        return self._recorded_key() == self.key.digest and self.artifact.is_dir()

    def _recorded_key(self) -> str:
        try:
            return (self.root / "key").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _report_loss(self) -> None:
        """Say in one line why what an interrupted run left is not resumed."""
        files = [path for path in self.root.rglob("*") if path.is_file() and path.name != "key"]
        if self._recorded_key() == self.key.digest:
            why = "their output folder no longer exists"
        else:
            why = "parameters, sources or inputs have changed, or its key is damaged"
        if files:
            LOG.warning("%s: discarding %d partial files: %s", self.root, len(files), why)

    def _start(self) -> None:
        self._discard()
        self.artifact.mkdir(parents=True)
        write_text(self.root / "key", self.key.digest)

    def _discard(self) -> None:
        """Remove the folder, its key first: what is left after a kill is not resumed."""
        (self.root / "key").unlink(missing_ok=True)
        if self.root.exists():
            shutil.rmtree(self.root)

    def _is_whole(self, folder: Path, outputs: Path) -> bool:
        """Whether this folder is what its manifest says, and that what is to be made now."""
        manifest = manifest_if_whole(folder)
        if manifest is None or manifest.key != self.key or manifest.versions != versions():
            return False
        return not any(compare(folder, manifest, {n: outputs / n for n in manifest.outputs}))

    def _exchange(self) -> None:
        remove_records(self.artifact)
        with exchanging(self.place):
            if self.place.exists():
                self.place.rename(self.root / "old")
            self.artifact.rename(self.place)
            self._put_outputs()
        self._discard()

    def _settle(self) -> None:
        """Finish an exchange that was interrupted, or take it back."""
        if (old := self.root / "old").exists() and not self.place.exists():
            old.rename(self.place)
        elif self._exchanged():
            with exchanging(self.place):
                self._put_outputs()
            self._discard()

    def _exchanged(self) -> bool:
        key, manifest = self._recorded_key(), manifest_if_whole(self.place)
        if not key or manifest is None or self.artifact.exists():
            return False
        return manifest.key.digest == key

    def _put_outputs(self) -> None:
        """Put each in place by rename; those that only the old artifact had go with it."""
        new, old = _outputs(self.place), _outputs(self.root / "old")
        for output in new:
            if (staged := self.root / "outputs" / output).exists():
                with replacing(output) as temporary:
                    shutil.copyfile(staged, temporary)
        for output in old - new:
            if output.parent in {other.parent for other in new}:
                output.unlink(missing_ok=True)


def _outputs(folder: Path) -> set[Path]:
    manifest = manifest_if_whole(folder)
    return {Path(name) for name in manifest.outputs} if manifest else set()


def abandoned(graph: Graph) -> Iterator[tuple[Path, int]]:
    """Yield folders that an interrupted run left and that no run would resume, with their size."""
    for root in sorted((ROOT / graph.experiment.name).glob(f"*/*/.*{SUFFIX}")):
        task = Task(root.parent.name, root.name[1 : -len(SUFFIX)])
        if not _resumable(graph, task, root):
            yield root, sum(file.stat().st_size for file in root.rglob("*") if file.is_file())


def _resumable(graph: Graph, task: Task, root: Path) -> bool:
    from ocm_core.pipeline.state import MISSING, key_of, states

    if task not in graph.tasks or MISSING in states(graph, graph.inputs[task]).values():
        return task in graph.tasks
    key = root / "key"
    return key.is_file() and key.read_text(errors="replace") == key_of(graph, task).digest
