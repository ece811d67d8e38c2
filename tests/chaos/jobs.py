"""A job in a process of its own, forked from one that has imported everything, and its end."""

import logging
import multiprocessing
import os
import signal
import sys
import time
from ctypes import c_int64
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import ocm_core
from ocm_core.pipeline.artifacts import folder_of
from ocm_core.pipeline.job import run_task
from ocm_core.pipeline.stage import Task

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
WATCHED = ("artifacts", "reports")
PACKAGE = Path(ocm_core.__file__).parent
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.chaos.doors", "tests.chaos.jobs"])  # once, for all

for file in sorted(PACKAGE.rglob("*.py")):  # what a stage would import in its first second
    module = file.relative_to(PACKAGE.parent).with_suffix("")
    if module.name != "__init__" and "commands" not in module.parts:
        import_module(".".join(module.parts))


class Job(NamedTuple):
    """One task of one tiny experiment."""

    name: str
    task: Task

    @property
    def folder(self) -> Path:
        return folder_of(self.name, self.task)

    @property
    def staging(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.staging")

    def __str__(self) -> str:
        return f"{self.name} {self.task}"


class Ended(NamedTuple):
    """How a job ended: 0, 1 for an error, or minus the signal that killed it."""

    code: int
    events: int  # how often it changed something on the disk
    seconds: float
    said: str


class Run:
    """A job that has begun, and is killed before its change of that number."""

    def __init__(self, job: Job, die_before: int | None = None) -> None:
        self._said = NamedTemporaryFile()  # noqa: SIM115  # until the end
        self._events, self._begun = processes.RawValue("q", 0), time.monotonic()
        order = (*job.task, die_before, self._said.name, self._events)
        self._process = processes.Process(target=_work, args=(job.name, *order))
        self._process.start()

    def wait_for(self, words: str) -> None:
        """Wait until it has said these words."""
        while words not in Path(self._said.name).read_text():
            assert self._process.is_alive(), Path(self._said.name).read_text()
            time.sleep(0.05)

    def end(self, after: float | None = None) -> Ended:
        """Wait for its end, or kill it after so many seconds."""
        self._process.join(after)
        self._process.kill()
        self._process.join()
        seconds, said = time.monotonic() - self._begun, Path(self._said.name).read_text()
        return Ended(self._process.exitcode, self._events.value, seconds, said)


def _work(
    name: str, stage: str, part: str, die_before: int | None, said: str, events: c_int64
) -> None:
    """Count each change of a watched file; be killed before the one of the given number."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        changes = event in CHANGES
        if event == "open":
            changes = bool(int(str(arguments[2] or 0)) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if changes and _watched(arguments[0]):
            if events.value == die_before:
                os.kill(os.getpid(), signal.SIGKILL)
            events.value += 1

    log = os.open(said, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(log, stream)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    sys.addaudithook(hook)
    run_task(name, stage, part, "cpu", 1)


def _watched(path: object) -> bool:
    if not isinstance(path, str | os.PathLike):
        return False
    name = os.path.relpath(os.fspath(path))
    return name.startswith(WATCHED) and ".locks" not in name
