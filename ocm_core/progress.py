"""Progress of long work: a bar on a terminal, and a line now and then in the log."""

import fcntl
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from logging import Logger
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 30.0

Progress = Callable[[Sequence[Item]], Iterable[Item]]  # passes items on and shows how far it is


def track(items: Collection[Item], description: str, log: Logger) -> Iterator[Item]:
    """Yield `items` with a bar, and log at each tenth; a range goes on from where it begins."""
    begun = items.start if isinstance(items, range) and items.step == 1 else 0
    total, last = begun + len(items), time.monotonic()
    with _sole_bar() as shown:
        look = {"initial": begun, "disable": not shown, "leave": False, "file": sys.stderr}
        for done, item in enumerate(tqdm(items, description, total, **look), start=begun + 1):
            yield item
            now = time.monotonic()
            if 10 * done // total > 10 * (done - 1) // total or now - last > SECONDS_BETWEEN_LINES:
                log.info("%s: %d of %d", description, done, total)
                last = now


@contextmanager
def _sole_bar() -> Iterator[bool]:
    """Yield whether to draw: on a terminal, by one process at a time, which locks it."""
    if not sys.stderr.isatty():
        yield False
        return
    terminal, free = os.open(os.ttyname(sys.stderr.fileno()), os.O_WRONLY | os.O_NOCTTY), False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(terminal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        yield free
    finally:
        os.close(terminal)
