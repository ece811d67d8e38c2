"""Many damaged inputs through one door, in a process of its own with limits on each input.

The process first lets the whole input in, which must be accepted, and then damaged ones, and says
of each what became of it. If it crashes or falls silent, the input that it was at is to blame, and
another process goes on after it. `python -m tests.chaos.fuzzing DOOR NUMBER` shows one input.
"""

import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import chdir
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import torch

from ocm_core.errors import OcmError
from tests.chaos.doors import DOORS
from tests.chaos.jobs import processes

SECONDS = 2.0  # of the processor: other work on the machine must not decide
MEMORY = 1 << 30
MESSAGE = 2000  # characters
SILENCE = 120.0  # seconds after which a process is stuck
PER_PROCESS = 500
ACCEPTED, REFUSED = "accepted", "refused"


def fuzz(name: str, count: int) -> list[str]:
    """What became of `count` damaged inputs at the door of that name."""
    found: list[str] = []
    while len(found) < count:
        with tempfile.TemporaryDirectory() as scratch:
            stop = min(len(found) + PER_PROCESS, count)
            found += in_one_process(name, range(len(found), stop), Path(scratch))
    return found


def in_one_process(name: str, numbers: range, scratch: Path) -> Iterator[str]:
    """What became of these inputs, up to the last or to one that ended the process."""
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=_try, args=(name, numbers, scratch, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        _next(ours)  # the whole input was accepted
        for _ in numbers:
            yield _next(ours)
        process.join(SILENCE)
    except (EOFError, TimeoutError) as error:
        process.kill()
        process.join()
        yield f"{type(error).__name__}: the process ended with {process.exitcode}"


def _next(connection: Connection) -> str:
    if not connection.poll(SILENCE):
        raise TimeoutError
    said: str = connection.recv()
    return said


def _try(name: str, numbers: range, scratch: Path, connection: Connection) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # of which all would be counted
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # libraries print
        os.dup2(silence, stream)
    _prepare(name, scratch)
    # Room for four times what is allowed: beyond it the machine itself would be in danger.
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 4 * MEMORY,) * 2)
    connection.send("ready")
    for number in numbers:
        _damage(name, number, scratch)
        connection.send(_judged(name, scratch))


def _prepare(name: str, scratch: Path) -> None:
    (scratch / "whole").mkdir()
    with chdir(scratch / "whole"):
        DOORS[name].build()
    shutil.copytree(scratch / "whole", scratch / "work")
    with chdir(scratch / "work"):
        DOORS[name].enter()


def _damage(name: str, number: int, scratch: Path) -> None:
    shutil.rmtree(scratch / "work")
    shutil.copytree(scratch / "whole", scratch / "work")
    with chdir(scratch / "work"):
        DOORS[name].damage(Random(f"{name} {number}"))


def _judged(name: str, scratch: Path) -> str:
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    begun, before = time.process_time(), _peak()
    try:
        with chdir(scratch / "work"):
            DOORS[name].enter()
        said = ACCEPTED
    except OcmError as error:
        length = len(str(error))
        said = REFUSED if length <= MESSAGE else f"a message of {length} characters"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:300]
    if (seconds := time.process_time() - begun) > SECONDS:
        return f"took {seconds:.1f} s ({said})"
    if (grown := _peak() - before) > MEMORY:
        return f"took {grown >> 20} MB ({said})"
    return said


def _peak() -> int:
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) << 10


def show(name: str, number: int) -> None:
    """Let one damaged input in, and see what happens."""
    with tempfile.TemporaryDirectory() as scratch:
        _prepare(name, Path(scratch))
        _damage(name, number, Path(scratch))
        print(_judged(name, Path(scratch)))
        _damage(name, number, Path(scratch))
        with chdir(Path(scratch, "work")):
            DOORS[name].enter()


if __name__ == "__main__":
    show(sys.argv[1], int(sys.argv[2]))
