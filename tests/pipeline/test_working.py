"""The old artifact stays until the new one is whole; what is resumed is checked; runs wait."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from math import inf
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from ocm_core.errors import OcmError
from ocm_core.io.seals import seal
from ocm_core.pipeline import locks, manifests, working
from ocm_core.pipeline.table import Task
from ocm_core.pipeline.working import WorkingFolder

TASK = Task("encode", "all")
OLD, NEW = (WorkingFolder("toy", TASK, {"parameters": key}) for key in ("old", "new"))
PAGE = WorkingFolder(
    "toy", Task("report", "all"), {"parameters": "old"}, ("reports/toy.html", "reports/toy.csv")
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(work: WorkingFolder) -> None:
    """What a job does, from the beginning to the end."""
    assert work.prepare(inf)
    key = work.facts["parameters"]
    (work.artifact / "file").write_text(f"of {key}")
    for name, file in work.staged.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name} of {key}")
    work.finish({})


def content() -> str:
    """Of the artifact, which must be whole."""
    assert list(manifests.differences("toy", TASK)) == []
    return (OLD.place / "file").read_text()


def test_the_old_artifact_is_whole_until_the_new_one_is() -> None:
    make(OLD)
    assert NEW.prepare(inf)
    (OLD.artifact / "file").write_text("half of n")
    assert content() == "of old"
    make(NEW)
    assert content() == "of new"
    assert [path.name for path in OLD.place.parent.iterdir()] == ["all"]


def test_the_same_key_resumes_sealed_pieces_and_nothing_else() -> None:
    assert OLD.prepare(inf)
    for name in ("sealed", "changed", "half", "sub/stray"):
        (OLD.artifact / name).parent.mkdir(exist_ok=True)
        (OLD.artifact / name).write_text(name)
    seal(OLD.artifact / "sealed")
    assert OLD.prepare(inf)
    assert [file.name for file in OLD.artifact.rglob("*") if file.is_file()] == ["sealed"] * 2
    OLD.finish({})
    assert {file.name for file in OLD.place.iterdir()} == {"manifest.json", "sealed"}


CHANGED = "its parameters, sources or inputs have changed"
DAMAGED = "its key is damaged or lost"


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (b"0" * 64, CHANGED),
        (b"other", DAMAGED),
        (b"\xff\xfe", DAMAGED),
        (b"", DAMAGED),
        (None, DAMAGED),
    ],
)
def test_what_is_not_of_this_key_is_thrown_away_and_said(
    left: bytes | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert OLD.prepare(inf)
    (OLD.artifact / "piece").write_text("piece")
    seal(OLD.artifact / "piece")
    OLD.state.mkdir()
    key = OLD.root / "key"
    key.unlink() if left is None else key.write_bytes(left)
    assert OLD.prepare(inf)
    assert list(OLD.artifact.iterdir()) == [] and not OLD.state.exists()
    (said,) = caplog.messages
    assert said.startswith(f"{OLD.root}: 2 files of an interrupted run are thrown away: {why}")


def test_where_nothing_is_lost_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert OLD.prepare(inf) and NEW.prepare(inf)
    make(OLD)
    make(NEW)
    assert not caplog.messages


def test_a_piece_that_changed_after_it_was_sealed_is_not_signed() -> None:
    assert OLD.prepare(inf)
    piece = OLD.artifact / "piece"
    piece.write_text("piece")
    seal(piece)
    piece.write_text("pieve")
    with pytest.raises(OcmError, match="piece: changed since it was written"):
        OLD.finish({})


def test_only_what_was_made_since_the_plan_is_not_made_again() -> None:
    """A run that is asked for by hand measures, fetches or computes once more."""
    make(OLD)
    made = (OLD.place / "manifest.json").stat().st_mtime
    assert not OLD.prepare(made - 1) and not OLD.root.exists()
    assert NEW.prepare(made - 1)
    assert OLD.prepare(made + 1)


@pytest.mark.parametrize("damage", ["flip", "missing", "extra", "manifest", "shape", "deep"])
def test_a_damaged_artifact_is_made_again_from_nothing(damage: str) -> None:
    make(OLD)
    file, manifest = OLD.place / "file", OLD.place / "manifest.json"
    match damage:
        case "flip":
            file.write_text("of olf")
        case "missing":
            file.unlink()
        case "extra":
            (OLD.place / "extra").touch()
        case "manifest":
            manifest.write_bytes(b"\xff")
        case "deep":
            manifest.write_text("[" * 3000 + "]" * 3000)
        case _:
            manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "files": None}))
    (OLD.place / ".working.json").write_text('{"key": "key"}\n')  # as earlier versions left it
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
        patch.setattr(WorkingFolder, "_exchange", lambda work: None)  # killed before
        make(NEW)
    if damaged:
        (OLD.artifact / "file").write_text("of nev")
    assert content() == "of old"
    assert NEW.prepare(inf) == damaged
    assert content() == ("of old" if damaged else "of new")
    assert not damaged or list(OLD.artifact.iterdir()) == []


def test_outputs_are_the_old_ones_until_the_new_are_whole_and_surplus_ones_go() -> None:
    make(replace(PAGE, outputs=(*PAGE.outputs, "elsewhere")))
    work = replace(PAGE, facts=NEW.facts, outputs=("reports/toy.html",))
    assert work.prepare(inf)
    staged = work.staged["reports/toy.html"]
    staged.parent.mkdir(parents=True)
    staged.write_text("half")
    assert Path("reports/toy.html").read_text() == "reports/toy.html of old"
    make(work)
    assert Path("reports/toy.html").read_text() == "reports/toy.html of new"
    assert not Path("reports/toy.csv").exists()
    assert Path("elsewhere").exists()
    assert list(manifests.differences("toy", PAGE.task)) == []


ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys; from pathlib import Path; from ocm_core.pipeline import locks
with getattr(locks, sys.argv[1])(Path("artifacts/toy/encode/all")):
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


def test_a_disk_that_is_full_before_anything_is_written_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(OLD)

    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(working, "write_text", full)
    with pytest.raises(OcmError, match=r"\.all\.working/key: No space left .* the disk of .* free"):
        NEW.prepare(inf)
    assert content() == "of old"
