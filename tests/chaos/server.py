"""`python -m tests.chaos.server` forks a job for every line of input, and says how it ended."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from ocm_core.pipeline.job import run_task

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate")
WATCHED = ("artifacts", "reports")


def import_all() -> None:
    """What a stage would import in its first second."""
    for file in sorted(Path("ocm_core").resolve().rglob("*.py")):
        name = file.relative_to(Path("ocm_core").resolve().parent).with_suffix("")
        if name.name != "__init__" and "commands" not in name.parts:
            import_module(".".join(name.parts))


def count_changes(die_before: int | None, counter: IO[bytes]) -> None:
    """Note each change of a watched file; be killed before the one of the given number."""
    done = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal done
        changes = event in CHANGES
        if event == "open":
            changes = bool(int(str(arguments[2] or 0)) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if not changes or not _watched(arguments[0]):
            return
        if done == die_before:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        os.pwrite(counter.fileno(), done.to_bytes(8, "little"), 0)

    sys.addaudithook(hook)


def _watched(path: object) -> bool:
    if not isinstance(path, str | os.PathLike):
        return False
    name = os.path.relpath(os.fspath(path))
    return name.startswith(WATCHED) and ".locks" not in name


def child(order: list[str], die_before: int | None, counter: IO[bytes], said: IO[bytes]) -> None:
    name, stage, part = order
    os.dup2(said.fileno(), 2)
    os.dup2(said.fileno(), 1)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    count_changes(die_before, counter)
    try:
        run_task(name, stage, part, "cpu", 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stderr.flush()
    os._exit(0)


def serve() -> None:
    import_all()
    print("ready", flush=True)
    for line in sys.stdin:
        *order, die_before, after = json.loads(line)
        with TemporaryFile() as counter, TemporaryFile() as said:
            start = time.monotonic()
            pid = os.fork()
            if pid == 0:
                child(order, die_before, counter, said)
            if after is not None:
                watch = os.pidfd_open(pid)
                if not select.select([watch], [], [], after)[0]:
                    os.kill(pid, signal.SIGKILL)
                os.close(watch)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            seconds = time.monotonic() - start
            events = int.from_bytes(os.pread(counter.fileno(), 8, 0), "little")
            said.seek(0)
            print(json.dumps([code, events, seconds, said.read().decode()]), flush=True)


if __name__ == "__main__":
    serve()
