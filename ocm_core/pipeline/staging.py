"""How an artifact comes about: in a folder beside it, which replaces the old one when it is whole.

    artifacts/digits/train/heads/trained             the artifact, or still the old one
    artifacts/digits/train/heads/.trained.staging    while a job works, and after an interruption
        key         digest of what the job makes: parameters, sources, inputs
        artifact/   becomes the artifact; finished files have checksums beside them
        state/      what an interrupted job resumes from, no part of the artifact
        outputs/    files that will lie elsewhere: the report's

The same key resumes; any other starts from nothing. The manifest is written last. From then on only
renames are left, which the next run finishes if a kill falls between them.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing, room_for, write_text
from ocm_core.io.checksums import FileRecord, remove_records, remove_unfinished
from ocm_core.pipeline import artifacts
from ocm_core.pipeline.artifacts import MANIFEST, Key, Manifest, manifest_if_whole, versions
from ocm_core.pipeline.stage import Task
from ocm_core.progress import LOG

SUFFIX = ".staging"


@contextmanager
def making(folder: Path) -> Iterator[bool]:
    """Be the only process that makes an artifact; yields whether another one was waited for."""
    stage = folder.parent
    file = stage.parent / ".locks" / f"{stage.name}-{folder.name}.making"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as stream:  # the system frees the lock when its holder ends
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            waited = False
        except BlockingIOError:
            LOG.warning("%s: another run is making it; waiting for that one to end", folder)
            fcntl.flock(stream, fcntl.LOCK_EX)
            waited = True
        except OSError as error:
            raise OcmError(
                f"{file.parent}: this file system has no locks ({error.strerror}): two jobs would "
                "write one artifact; use one that has (NFS 4, or Lustre mounted with `flock`)"
            ) from None
        yield waited


def take_over(earlier: Path, files: Mapping[str, FileRecord], target: Path) -> bool:
    """Link files of an earlier artifact, if all of them are as its manifest has them."""
    if any(artifacts.changes({earlier / name: record for name, record in files.items()})):
        return False
    for name in files:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).unlink(missing_ok=True)
        try:
            os.link(earlier / name, target / name)
        except OSError:  # another device, or a file system without links
            shutil.copyfile(earlier / name, target / name)
    return True


class StagingFolder:
    """The staging folder of one artifact, for the process that holds the right to make it."""

    def __init__(self, experiment: str, task: Task, key: Key) -> None:
        self.experiment, self.task, self.key = experiment, task, key
        self.place = artifacts.folder_of(experiment, task)  # where the artifact belongs
        self.root = self.place.with_name(f".{self.place.name}{SUFFIX}")
        self.artifact, self.state = self.root / "artifact", self.root / "state"
        self.outputs = self.root / "outputs"  # by their paths in the project

    def prepare(self) -> bool:
        """Make `artifact` ready for work; return False if only renames were left, and are done."""
        with room_for(self.root):
            key, file = self.key.digest, self.root / "key"
            same = file.is_file() and file.read_text(errors="replace") == key
            made = manifest_if_whole(self.artifact) if same else None
            known = made is not None and (made.key, made.versions) == (self.key, versions())
            if made and known and not any(artifacts.compare(self.artifact, made, self.outputs)):
                self._put_in_place()
                return False
            if not same or not self.artifact.is_dir() or (self.artifact / MANIFEST).exists():
                if left := [f for f in self.root.rglob("*") if f.is_file() and f != file]:
                    why = "parameters, sources or inputs have changed, or the files are damaged"
                    LOG.warning("%s: discarding %d partial files: %s", self.root, len(left), why)
                self._discard()
                self.artifact.mkdir(parents=True)
                write_text(file, key)
            remove_unfinished(self.artifact)
        return True

    def finish(self, notes: Mapping[str, Any], pieces: Mapping[str, str]) -> None:
        """Write the manifest, and put the artifact in place."""
        made = {"experiment": self.experiment, **self.task._asdict(), "key": self.key}
        files, outputs = map(artifacts.records, (self.artifact, self.outputs))
        said = {"pieces": dict(pieces), "notes": json.loads(json.dumps(dict(notes)))}
        manifest = Manifest(**made, files=files, outputs=outputs, **said, versions=versions())
        write_text(self.artifact / MANIFEST, manifest.text)
        self._put_in_place()

    def _put_in_place(self) -> None:
        """Replace outputs and then the artifact: with its manifest the new one begins to exist."""
        remove_records(self.artifact)
        new, old = (
            {Path(name) for name in manifest.outputs} if manifest else set()
            for manifest in map(manifest_if_whole, (self.artifact, self.place))
        )
        for output in new:
            with replacing(output) as temporary:
                shutil.copyfile(self.outputs / output, temporary)
        for output in old - new:  # those that only the old artifact had
            if output.parent in {other.parent for other in new}:
                output.unlink(missing_ok=True)
        if self.place.exists():
            self.place.rename(self.root / "old")
        self.artifact.rename(self.place)
        self._discard()

    def _discard(self) -> None:
        """Remove the folder, its key first: what is left after a kill is not resumed."""
        (self.root / "key").unlink(missing_ok=True)
        if self.root.exists():
            shutil.rmtree(self.root)
