"""Writers as processes of their own, and a parent that starts one after another without delay.

`python -m tests.store.writer` reads lines of JSON, (path, number of the file operation to die
before), forks a writer for each, and prints its exit code. The parent itself never writes, so that
it has no threads when it forks.
"""

import json
import os
import signal
import sys
from pathlib import Path

from ocm_core.store.writer import write

from .data import ATTRS, plan, reader, values

WHOLE = plan(range(13), shard=8)
DATA = values(13, WHOLE.shape, "float32")


def write_store(path: Path) -> None:
    write(path, WHOLE, reader(WHOLE, DATA), ATTRS)


def die_before(number: int, path: Path) -> None:
    """Let this process be killed before it changes something below `path` for that time."""
    left = number

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        name = str(arguments[0]) if arguments else ""
        changing = event in ("os.rename", "os.link", "os.remove")
        begun = event == "open" and name.endswith((".partial", ".tmp"))
        if name.startswith(str(path)) and (changing or begun):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def serve() -> None:
    for line in sys.stdin:
        path, number = json.loads(line)
        child = os.fork()
        if child == 0:
            die_before(number, Path(path))
            write_store(Path(path))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
