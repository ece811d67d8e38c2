"""A bar of bytes on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from ocm_core.checkpoints.download import Progress


@contextmanager
def byte_bar(description: str) -> Iterator[Progress]:
    silent = not sys.stderr.isatty()
    with tqdm(desc=description, unit="B", unit_scale=True, disable=silent, leave=False) as bar:

        def show(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
