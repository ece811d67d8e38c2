"""How an artifact comes about: in a working folder beside it, exchanged for the old one when whole.

    artifacts/digits/heads/learned             the artifact; the old one, until the new one is whole
    artifacts/digits/heads/.learned.working    while a job works, and after an interruption
        key         what the job makes: parameters, sources, inputs
        artifact/   what will be the artifact; finished pieces have seals
        state/      what an interrupted job resumes from, and no part of the artifact
        outputs/    what will lie outside of it: the report's page, metrics and plot data
        old/        during the exchange: the artifact that was

The same key resumes; any other starts from nothing. An exchange is two renames, between which a
kill may fall: whoever makes the artifact next first finishes it, or takes it back.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ocm_core.io.atomic import replacing, write_text
from ocm_core.io.disk import room_for
from ocm_core.io.seals import remove_seals, remove_unsealed
from ocm_core.pipeline import manifests
from ocm_core.pipeline.locks import exchanging
from ocm_core.pipeline.manifests import MANIFEST
from ocm_core.pipeline.table import Task

LOG = logging.getLogger("ocm")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class WorkingFolder:
    """Of one artifact, for the process that holds the right to make it."""

    experiment: str
    task: Task
    facts: Mapping[str, Any]  # what decides its bytes: digests of parameters, sources, inputs
    outputs: tuple[str, ...] = ()  # paths outside of the artifact that the job writes

    @property
    def key(self) -> str:
        return manifests.text_digest(self.facts)

    @property
    def place(self) -> Path:
        """Where the artifact belongs."""
        return manifests.folder_of(self.experiment, self.task)

    @property
    def root(self) -> Path:
        return self.place.with_name(f".{self.place.name}.working")

    @property
    def artifact(self) -> Path:
        return self.root / "artifact"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def staged(self) -> dict[str, Path]:
        """The outputs by their names, until they are put in place."""
        return {name: self.root / "outputs" / name for name in self.outputs}

    def prepare(self, planned: float) -> bool:
        """Whether there is work to do; then `artifact` is ready for it.

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
            self._tell_of_loss()
            self._start()
        elif (self.artifact / MANIFEST).exists():
            if self._is_whole(self.artifact, self.staged):
                self._exchange()
                return False
            LOG.warning("%s: not as its manifest says; it is made anew", self.artifact)
            self._start()
        remove_unsealed(self.artifact)
        return True

    def finish(self, notes: Mapping[str, Any]) -> None:
        """Sign what the job has written, and put it in the artifact's place."""
        facts = {**self.facts, "key": self.key, "notes": dict(notes)}
        text = manifests.signed(self.experiment, self.task, self.artifact, self.staged, facts)
        write_text(self.artifact / MANIFEST, text)
        self._exchange()

    def _made_since(self, planned: float) -> bool:
        manifest = self.place / MANIFEST
        if not manifest.exists() or manifest.stat().st_mtime < planned:
            return False
        return self._is_whole(self.place, {name: Path(name) for name in self.outputs})

    def _begun(self) -> bool:
        return self._found_key() == self.key and self.artifact.is_dir()

    def _found_key(self) -> str:
        """What is in the place of the key; nothing where there is none."""
        try:
            return (self.root / "key").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _tell_of_loss(self) -> None:
        """What an interrupted run left and why it is not resumed, in one line."""
        files = [path for path in self.root.rglob("*") if path.is_file() and path.name != "key"]
        key = self._found_key()
        if key == self.key:
            why = "the artifact that they are of is gone"
        elif _DIGEST.fullmatch(key):
            why = "its parameters, sources or inputs have changed"
        else:
            why = "its key is damaged or lost"
        if files:
            said = "%s: %d files of an interrupted run are thrown away: %s"
            LOG.warning(said, self.root, len(files), why)

    def _start(self) -> None:
        self._discard()
        self.artifact.mkdir(parents=True)
        write_text(self.root / "key", self.key)

    def _discard(self) -> None:
        """The key first: what is left after a kill is not resumed."""
        (self.root / "key").unlink(missing_ok=True)
        if self.root.exists():
            shutil.rmtree(self.root)

    def _is_whole(self, folder: Path, outputs: Mapping[str, Path]) -> bool:
        """Whether this folder is what its manifest says, and that what is to be made here now."""
        manifest = _manifest(folder)
        expected = {**self.facts, "key": self.key, "versions": manifests.versions()}
        if any(manifest.get(name) != value for name, value in expected.items()):
            return False
        same = manifest["outputs"].keys() == outputs.keys()
        return same and not any(manifests.compare(folder, manifest, outputs))

    def _exchange(self) -> None:
        remove_seals(self.artifact)
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
        key = self._found_key()
        return bool(key) and not self.artifact.exists() and _manifest(self.place).get("key") == key

    def _put_outputs(self) -> None:
        """Each by rename; and those beside them that only the old artifact had go with it."""
        new, old = _outputs(self.place), _outputs(self.root / "old")
        for output in new:
            if (staged := self.root / "outputs" / output).exists():
                with replacing(output) as temporary:
                    shutil.copyfile(staged, temporary)
        for output in old - new:
            if output.parent in {other.parent for other in new}:
                output.unlink(missing_ok=True)


def _outputs(folder: Path) -> set[Path]:
    return {Path(name) for name in _manifest(folder).get("outputs", {})}


def _manifest(folder: Path) -> manifests.Manifest:
    """The manifest of a folder; an empty one if there is none that can be read."""
    try:
        return manifests.parsed((folder / MANIFEST).read_bytes())
    except (FileNotFoundError, ValidationError):
        return {}
