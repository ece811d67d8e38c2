"""Real writers: four side by side, and one that is killed before every change that it makes."""

import json
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from ocm_core.store.reader import open_split
from ocm_core.store.writer import write

from .data import ATTRS, digests, plan, ranges, reader, values
from .writer import write_store

Run = Callable[[Path, int], int]


def write_part(folder: Path, items: range) -> None:
    part = plan(items, shard=16)
    write(folder / "train.zarr", part, reader(part, values(203, part.shape, "float32")), ATTRS)


def test_four_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(4)]
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(write_part, folders, ranges(203, 4, 16)))
    stored = open_split(folders, "train")
    expected = values(203, (2, 3), "float32")
    np.testing.assert_array_equal(stored.all(), expected["x"])
    np.testing.assert_array_equal(stored.labels, expected["label"])


@pytest.fixture
def run() -> Iterator[Run]:
    """Start a writer that dies before its change of the given number; its exit code."""
    command, pipe = [sys.executable, "-m", "tests.store.writer"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as server:
        stdin, stdout = server.stdin, server.stdout
        assert stdin is not None and stdout is not None

        def once(path: Path, number: int) -> int:
            print(json.dumps([str(path), number]), file=stdin, flush=True)
            return int(stdout.readline())

        yield once
        stdin.close()


def test_a_writer_killed_at_any_moment_and_resumed_gives_the_same_bytes(
    tmp_path: Path, run: Run
) -> None:
    write_store(tmp_path / "whole.zarr")
    half_written, expected = 0, digests(tmp_path / "whole.zarr")
    for number in count():
        path = tmp_path / f"{number}.zarr"
        exit_code = run(path, number)
        half_written += any(name.endswith((".partial", ".tmp")) for name in digests(path))
        write_store(path)
        assert digests(path) == expected, number
        if exit_code == 0:
            break
        assert exit_code == -signal.SIGKILL
    assert number > 30 and half_written > 10
    path = tmp_path / "train.zarr"
    exit_codes = [run(path, number) for number in (5, 12, 20, 4, 6, 100)]  # again and again
    assert exit_codes == [-signal.SIGKILL] * 5 + [0]
    assert digests(path) == expected
