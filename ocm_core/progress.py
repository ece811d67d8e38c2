"""Progress of long work: a bar on a terminal, and a line now and then in the log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from logging import Logger
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 30.0

Progress = Callable[[Sequence[Item]], Iterable[Item]]  # passes items on and shows how far it is


def track(items: Collection[Item], description: str, log: Logger) -> Iterator[Item]:
    """Yield `items`, showing a bar; log at each tenth and at least every half minute."""
    total = len(items)
    last = time.monotonic()
    bar = tqdm(items, desc=description, disable=not sys.stderr.isatty(), leave=False)
    for done, item in enumerate(bar, start=1):
        yield item
        now = time.monotonic()
        if 10 * done // total > 10 * (done - 1) // total or now - last > SECONDS_BETWEEN_LINES:
            log.info("%s: %d of %d", description, done, total)
            last = now
