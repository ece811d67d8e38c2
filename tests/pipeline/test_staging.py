"""The old artifact stays until the new one is whole; what is resumed is checked; runs wait."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from ocm_core.errors import OcmError
from ocm_core.io.checksums import record_checksum
from ocm_core.pipeline import artifacts, locks, staging
from ocm_core.pipeline.artifacts import Key
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.staging import StagingFolder
from tests.pipeline.conftest import ROOT

TASK, REPORT = Task("encode"), Task("report")
OLD, NEW = (StagingFolder("toy", TASK, Key(parameters=key, sources="")) for key in ("old", "new"))
OLD_PAGE, NEW_PAGE = (StagingFolder("toy", REPORT, staged.key) for staged in (OLD, NEW))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(staged: StagingFolder, *outputs: str) -> None:
    """Do what a job does, from the beginning to the end."""
    assert staged.prepare(inf)
    key = staged.key.parameters
    (staged.artifact / "file").write_text(f"of {key}")
    for name in outputs:
        file = staged.outputs / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name} of {key}")
    staged.finish({}, {"file": key})


def content() -> str:
    """Return what the artifact holds, which must be whole."""
    assert list(artifacts.differences("toy", TASK)) == []
    return (OLD.place / "file").read_text()


def test_the_old_artifact_is_whole_until_the_new_one_is() -> None:
    make(OLD)
    assert NEW.prepare(inf)
    (OLD.artifact / "file").write_text("half of n")
    assert content() == "of old"
    make(NEW)
    assert content() == "of new"
    assert [path.name for path in OLD.place.parent.iterdir()] == ["all"]


def test_the_same_key_resumes_finished_pieces_and_nothing_else() -> None:
    assert OLD.prepare(inf)
    for name in ("finished", "changed", "half", "sub/stray"):
        (OLD.artifact / name).parent.mkdir(exist_ok=True)
        (OLD.artifact / name).write_text(name)
    record_checksum(OLD.artifact / "finished")
    assert OLD.prepare(inf)
    assert [file.name for file in OLD.artifact.rglob("*") if file.is_file()] == ["finished"] * 2
    OLD.finish({}, {})
    assert {file.name for file in OLD.place.iterdir()} == {"manifest.json", "finished"}


@pytest.mark.parametrize("left", [b"0" * 64, b"other", b"\xff\xfe", b"", None])
def test_the_state_of_other_parameters_is_discarded_and_said(
    left: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert OLD.prepare(inf)
    (OLD.artifact / "piece").write_text("piece")
    record_checksum(OLD.artifact / "piece")
    OLD.state.mkdir()
    key = OLD.root / "key"
    key.unlink() if left is None else key.write_bytes(left)
    assert OLD.prepare(inf)
    assert list(OLD.artifact.iterdir()) == [] and not OLD.state.exists()
    why = "parameters, sources or inputs have changed, or its key is damaged"
    assert caplog.messages == [f"{OLD.root}: discarding 2 partial files: {why}"]


def test_where_nothing_is_lost_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert OLD.prepare(inf) and NEW.prepare(inf)
    make(OLD)
    make(NEW)
    assert not caplog.messages


def test_a_piece_that_changed_after_it_was_finished_is_not_signed() -> None:
    assert OLD.prepare(inf)
    piece = OLD.artifact / "piece"
    piece.write_text("piece")
    record_checksum(piece)
    piece.write_text("pieve")
    with pytest.raises(OcmError, match="piece: changed since it was written"):
        OLD.finish({}, {})


def test_only_what_was_made_since_the_plan_is_not_made_again() -> None:
    make(OLD)
    made = (OLD.place / "manifest.json").stat().st_mtime
    assert not OLD.prepare(made - 1) and not OLD.root.exists()
    assert NEW.prepare(made - 1)
    assert OLD.prepare(made + 1)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flip": lambda folder: (folder / "file").write_text("of olf"),
    "missing": lambda folder: (folder / "file").unlink(),
    "extra": lambda folder: (folder / "extra").touch(),
    "manifest": lambda folder: (folder / "manifest.json").write_bytes(b"\xff"),
    "deep": lambda folder: (folder / "manifest.json").write_text("[" * 3000 + "]" * 3000),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_artifact_is_made_again_from_nothing(damage: str) -> None:
    make(OLD)
    DAMAGE[damage](OLD.place)
    assert OLD.prepare(0)
    assert list(OLD.artifact.iterdir()) == []
    make(OLD)
    assert content() == "of old"


@pytest.mark.parametrize("damaged", [False, True])
def test_what_was_signed_before_a_kill_is_only_put_in_place(
    damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(OLD)
    with monkeypatch.context() as patch:
        patch.setattr(StagingFolder, "_exchange", lambda staged: None)  # killed before
        make(NEW)
    if damaged:
        (OLD.artifact / "file").write_text("of nev")
    assert content() == "of old"
    assert NEW.prepare(inf) == damaged
    assert content() == ("of old" if damaged else "of new")
    assert not damaged or list(OLD.artifact.iterdir()) == []


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_kill_between_the_renames_of_an_exchange_loses_nothing(
    renames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two renames exchange the folders, the others put the outputs in place."""
    make(OLD_PAGE, "reports/toy.html", "reports/toy/results.csv")
    rename, left = os.rename, [renames]

    def until_killed(*paths: Any) -> None:
        if not left[0]:
            raise KilledError
        left[0] -= 1
        rename(*paths)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Path, "rename", lambda path, target: until_killed(path, target))
        patch.setattr(Path, "replace", lambda path, target: until_killed(path, target))
        patch.setattr(os, "replace", until_killed)
        patch.setattr(staging, "write_text", lambda file, text: file.write_text(text))
        make(NEW_PAGE, "reports/toy.html", "reports/toy/results.csv")
    again = NEW_PAGE.prepare(inf)
    if not again:  # the exchange was finished
        assert artifacts.read_manifest(NEW_PAGE.place).key == NEW.key
    if (NEW_PAGE.artifact / "manifest.json").exists():
        pytest.fail("a signed artifact was neither put in place nor made again")
    if again:
        make(NEW_PAGE, "reports/toy.html", "reports/toy/results.csv")
    assert list(artifacts.differences("toy", REPORT)) == []
    assert Path("reports/toy.html").read_text() == "reports/toy.html of new"
    assert not NEW_PAGE.root.exists()


def test_outputs_are_the_old_ones_until_the_new_are_whole_and_surplus_ones_go() -> None:
    make(OLD_PAGE, "reports/toy.html", "reports/toy.csv", "elsewhere/toy.csv")
    assert NEW_PAGE.prepare(inf)
    staged = NEW_PAGE.outputs / "reports/toy.html"
    staged.parent.mkdir(parents=True)
    staged.write_text("half")
    assert Path("reports/toy.html").read_text() == "reports/toy.html of old"
    make(NEW_PAGE, "reports/toy.html")
    assert Path("reports/toy.html").read_text() == "reports/toy.html of new"
    assert not Path("reports/toy.csv").exists()
    assert Path("elsewhere/toy.csv").exists()
    assert list(artifacts.differences("toy", REPORT)) == []


@pytest.mark.parametrize(
    ("key", "damaged", "given"),
    [("old", False, True), ("other", False, False), ("old", True, False)],
)
def test_a_piece_is_taken_over_if_it_was_made_from_the_same_and_is_whole(
    key: str, damaged: bool, given: bool, tmp_path: Path
) -> None:
    """Files beside it do not matter, whatever they are called."""
    make(OLD)
    if damaged:
        (OLD.place / "file").write_text("of olf")
    (OLD.place / "extra").touch()
    earlier = NEW.earlier
    assert earlier is not None
    assert earlier.give("file", key, tmp_path / "new") is given
    assert (tmp_path / "new/file").exists() is given
    assert not earlier.give("absent", key, tmp_path / "new")


HOLD = """
import sys; from pathlib import Path; from ocm_core.pipeline import locks
with getattr(locks, sys.argv[1])(Path("artifacts/toy/encode/encode/all")):
    print("held", flush=True); input()
"""


@pytest.mark.parametrize(
    ("held", "wanted", "said"),
    [
        ("making", locks.making, "another run is making it"),
        ("reading", locks.exchanging, "another run reads the old one"),
        ("exchanging", locks.reading, "putting a new one in its place"),
    ],
)
def test_who_comes_second_says_so_waits_and_gets_there(
    held: str, wanted: Callable[[Path], AbstractContextManager[None]], said: str, caplog: Any
) -> None:
    """Even if the first was killed."""
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, held],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=PIPE,
        stdout=PIPE,
        text=True,
    )
    assert first.stdout and first.stdout.readline() == "held\n"
    threading.Timer(0.3, first.kill).start()
    with wanted(OLD.place):
        assert first.poll() is not None or first.wait(5)
    assert [record.getMessage() for record in caplog.records if said in record.getMessage()]


def test_many_read_while_another_makes() -> None:
    with locks.making(OLD.place), locks.reading(OLD.place), locks.reading(OLD.place):
        pass


@pytest.mark.parametrize("held", [locks.making, locks.reading, locks.exchanging])
def test_a_file_system_without_locks_is_named_before_work(
    held: Callable[[Path], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with (
        pytest.raises(OcmError, match=r"encode/\.locks: this file system has no locks \(No locks"),
        held(OLD.place),
    ):
        pass


def test_a_disk_that_is_full_before_anything_is_written_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(OLD)

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(staging, "write_text", full)
    with pytest.raises(OcmError, match=r"\.all\.staging/key: No space left .* the disk of .* free"):
        NEW.prepare(inf)
    assert content() == "of old"
