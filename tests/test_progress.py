"""A bar for one job at a time, from where the work is, and lines in the log."""

import fcntl
import os
import pty
import re
from collections.abc import Iterator
from select import select
from types import SimpleNamespace

import pytest

from ocm_core import progress
from ocm_core.progress import meter, track


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Stderr is a terminal; what is drawn can be read from the descriptor."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr("ocm_core.progress.sys", SimpleNamespace(stderr=stream))
        yield reader
    os.close(reader)


def drawn(reader: int) -> str:
    """All that has been drawn since; a terminal passes it on in its own time."""
    found = b""
    while select([reader], [], [], 0.5)[0]:
        found += os.read(reader, 1 << 16)
    return found.decode()


def test_a_resumed_bar_begins_at_its_work(terminal: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert list(track(range(80, 100), "heads")) == list(range(80, 100))
    assert "80%" in drawn(terminal).split("\r")[1]
    assert caplog.messages == ["heads: 90 of 100", "heads: 100 of 100"]
    caplog.clear()
    list(track([7, 8], "cells"))
    assert "| 0/2 " in drawn(terminal)
    assert caplog.messages == ["cells: 1 of 2", "cells: 2 of 2"]


def test_bars_of_two_jobs_do_not_collide(terminal: int) -> None:
    another = os.open(os.ttyname(progress.sys.stderr.fileno()), os.O_WRONLY | os.O_NOCTTY)
    fcntl.flock(another, fcntl.LOCK_EX)
    assert list(track(range(3), "second")) == [0, 1, 2]
    assert "second" not in drawn(terminal)
    os.close(another)
    list(track(range(3), "third"))
    assert "third" in drawn(terminal)


def test_a_long_piece_shows_its_own_steps_below_the_bar_of_all(terminal: int) -> None:
    for _ in track(range(2), "candidates"):
        with meter(5, "passes") as advance:
            advance()
        assert "passes" in drawn(terminal)


def test_the_log_has_a_rate_and_an_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    clock = iter([0.0, *(31.0 * n for n in range(1, 101))])
    monkeypatch.setattr("ocm_core.progress.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with meter(1000, "sampling") as advance:
        for _ in range(100):
            advance()
    assert len(caplog.messages) == 100, "each of them took longer than the lines are apart"
    line = r"sampling: 100 of 1000, 0\.0323 per second, ends about (20\d\d-\d\d-\d\d )?\d\d:\d\d"
    assert re.fullmatch(line, caplog.messages[-1])


def test_no_bar_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(3), "items")) == [0, 1, 2]
    assert capfd.readouterr().err == ""
