"""Progress of long work: a bar on a terminal, and a line now and then in the log."""

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TypeVar

from tqdm import tqdm

LOG = logging.getLogger("ocm")
Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 30.0

Progress = Callable[[Sequence[Item]], Iterable[Item]]  # passes items on and shows how far it is
_bars = 0  # that this process draws, one in another


def track(items: Collection[Item], description: str) -> Iterator[Item]:
    """Yield `items` and show how many are done; a range goes on from where it begins."""
    begun = items.start if isinstance(items, range) and items.step == 1 else 0
    with meter(begun + len(items), description, begun) as advance:
        for item in items:
            yield item
            advance()


@contextmanager
def meter(total: int, description: str, begun: int = 0) -> Iterator[Callable[[], None]]:
    """Yield what to call after each step: it draws a bar, and logs at each tenth or 30 seconds.

    A line has the rate and the time at which the work will end, if it goes on like this.
    """
    done, start = begun, time.monotonic()
    last = start
    with _bar_of_one_process() as shown:
        look = {"initial": begun, "disable": not shown, "leave": False, "file": sys.stderr}
        with tqdm(desc=description, total=total, **look) as bar:

            def advance() -> None:
                nonlocal done, last
                done, now = done + 1, time.monotonic()
                bar.update()
                if 10 * done // total > 10 * (done - 1) // total or (
                    now - last > SECONDS_BETWEEN_LINES
                ):
                    pace = _pace(done - begun, total - done, now - start)
                    LOG.info("%s: %d of %d%s", description, done, total, pace)
                    last = now

            yield advance


def _pace(done: int, left: int, seconds: float) -> str:
    """Say how many steps a second were done, and when the others will be; nothing of an instant."""
    if not left or seconds < 1:
        return ""
    end = datetime.now() + timedelta(seconds=left * seconds / done)
    day = "" if end.date() == datetime.now().date() else f"{end:%Y-%m-%d} "
    return f", {done / seconds:.3g} per second, ends about {day}{end:%H:%M}"


@contextmanager
def _bar_of_one_process() -> Iterator[bool]:
    """Yield whether to draw: on a terminal, by one process at a time, which locks it."""
    global _bars
    if not sys.stderr.isatty():
        yield False
        return
    terminal, free = os.open(os.ttyname(sys.stderr.fileno()), os.O_WRONLY | os.O_NOCTTY), _bars > 0
    try:
        with suppress(BlockingIOError):
            if not free:
                fcntl.flock(terminal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        _bars += free
        yield free
    finally:
        _bars -= free
        os.close(terminal)
