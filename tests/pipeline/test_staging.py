"""Manifests prove themselves; the old artifact stays until the new one is whole."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE
from typing import Any
from unittest.mock import Mock

import pytest

from ocm_core.errors import OcmError
from ocm_core.io.checksums import record_checksum
from ocm_core.pipeline import artifacts, staging
from ocm_core.pipeline.artifacts import Key
from ocm_core.pipeline.job import Job, MadeOf
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.staging import StagingFolder, making
from tests.pipeline.conftest import ROOT

TASK, REPORT = Task("encode"), Task("report")
KEYS = {name: Key(parameters=name, sources="", inputs={"a/b": "c"}) for name in ("old", "new")}
OLD, NEW = (StagingFolder("toy", TASK, key) for key in KEYS.values())
OLD_PAGE, NEW_PAGE = (StagingFolder("toy", REPORT, key) for key in KEYS.values())
PAGE, TABLE = "reports/toy.html", "reports/toy/results.csv"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(staged: StagingFolder, *outputs: str, pieces: Mapping[str, str] | None = None) -> Path:
    """Do what a job does, from the beginning to the end."""
    assert staged.prepare()
    key = staged.key.parameters
    (staged.artifact / "sub").mkdir()
    (staged.artifact / "sub/one").write_text("one")
    (staged.artifact / "file").write_text(f"of {key}")
    for name in outputs:
        file = staged.outputs / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{name} of {key}")
    staged.finish({"items": 3, "share": 0.1}, pieces or {})
    return staged.place


def content() -> str:
    """Return what the artifact holds, which must be whole."""
    assert list(artifacts.differences("toy", TASK)) == []
    return (OLD.place / "file").read_text()


def test_a_finished_artifact_is_whole_and_holds_nothing_of_the_machine() -> None:
    folder = make(OLD)
    manifest, text = artifacts.read_manifest(folder), (folder / "manifest.json").read_text()
    assert list(artifacts.differences("toy", TASK)) == []
    assert set(manifest.files) == {"sub/one", "file"} and manifest.key == OLD.key
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "sub", "file"}
    assert manifest.text == text and str(Path.cwd()) not in text


def test_differences_are_named() -> None:
    folder = make(OLD)
    (folder / "sub/one").unlink()
    (folder / "file").write_bytes(b"of olf")
    (folder / "three").write_bytes(b"")
    assert [line.split(", ")[0] for line in artifacts.differences("toy", TASK)] == [
        f"{folder}/three: extra",
        f"{folder}/file: changed",
        f"{folder}/sub/one: missing",
    ]
    with pytest.raises(OcmError, match=r"file: changed(.|\n)*--force artifacts/toy/encode/encode"):
        artifacts.checked_folder("toy", TASK)
    (folder / "manifest.json").unlink()
    with pytest.raises(OcmError, match=r"no such artifact; `snakemake .*manifest\.json` makes it"):
        artifacts.checked_folder("toy", TASK)


def test_one_changed_character_anywhere_in_a_manifest_is_damage() -> None:
    folder = make(OLD)
    file = folder / "manifest.json"
    whole = file.read_bytes()
    for place, old in enumerate(whole):
        for new in {ord("0"), ord(" "), old ^ 1} - {old}:
            file.write_bytes(whole[:place] + bytes([new]) + whole[place + 1 :])
            with pytest.raises(OcmError, match=r"manifest\.json: damaged: .*makes it again"):
                artifacts.read_manifest(folder)


def test_the_old_artifact_is_whole_until_the_new_one_is(caplog: pytest.LogCaptureFixture) -> None:
    make(OLD)
    assert NEW.prepare()
    (NEW.artifact / "file").write_text("half of n")
    assert content() == "of old"
    make(NEW)
    assert content() == "of new"
    assert [path.name for path in OLD.place.parent.iterdir()] == ["all"]
    assert not caplog.messages  # nothing was lost


def test_the_same_key_resumes_finished_pieces_and_nothing_else() -> None:
    assert OLD.prepare()
    for name in ("finished", "changed", "half", "sub/stray"):
        (OLD.artifact / name).parent.mkdir(exist_ok=True)
        (OLD.artifact / name).write_text(name)
    record_checksum(OLD.artifact / "finished")
    assert OLD.prepare()
    assert [file.name for file in OLD.artifact.rglob("*") if file.is_file()] == ["finished"] * 2
    OLD.finish({}, {})
    assert {file.name for file in OLD.place.iterdir()} == {"manifest.json", "finished"}
    assert NEW.prepare()
    (NEW.artifact / "piece").write_text("piece")
    record_checksum(NEW.artifact / "piece")
    (NEW.artifact / "piece").write_text("pieve")
    with pytest.raises(OcmError, match="piece: changed since it was written"):
        NEW.finish({}, {})


@pytest.mark.parametrize("left", [b"0" * 64, b"other", b"\xff\xfe", b"", None])
def test_other_states_are_discarded(left: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    assert OLD.prepare()
    (OLD.artifact / "piece").write_text("piece")
    record_checksum(OLD.artifact / "piece")
    OLD.state.mkdir()
    key = OLD.root / "key"
    key.unlink() if left is None else key.write_bytes(left)
    assert OLD.prepare()
    assert list(OLD.artifact.iterdir()) == [] and not OLD.state.exists()
    (said,) = caplog.messages
    assert said.startswith(f"{OLD.root}: discarding 2 partial files: parameters, sources or inputs")


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("renames", range(4))
def test_kills_lose_nothing(renames: int, damaged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    make(OLD_PAGE, PAGE, TABLE)
    rename, left = os.rename, iter(range(renames))

    def until_killed(*paths: Any) -> None:
        if next(left, None) is None:
            raise KilledError
        rename(*paths)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Path, "rename", until_killed)
        patch.setattr(Path, "replace", until_killed)
        patch.setattr(staging, "write_text", lambda file, text: file.write_text(text))
        make(NEW_PAGE, PAGE, TABLE)
    if damaged:
        (NEW_PAGE.artifact / "file").write_text("of nev")
        assert NEW_PAGE.prepare() and list(NEW_PAGE.artifact.iterdir()) == []
        make(NEW_PAGE, PAGE, TABLE)
    else:
        assert not NEW_PAGE.prepare()
    assert list(artifacts.differences("toy", REPORT)) == []
    assert artifacts.read_manifest(NEW_PAGE.place).key == NEW.key
    assert Path(PAGE).read_text() == f"{PAGE} of new" and not NEW_PAGE.root.exists()


def test_outputs_are_the_old_ones_until_the_new_are_whole_and_surplus_ones_go() -> None:
    make(OLD_PAGE, PAGE, "reports/toy.csv", "elsewhere/toy.csv")
    assert NEW_PAGE.prepare()
    staged = NEW_PAGE.outputs / PAGE
    staged.parent.mkdir(parents=True)
    staged.write_text("half")
    assert Path(PAGE).read_text() == f"{PAGE} of old"
    make(NEW_PAGE, PAGE)
    assert Path(PAGE).read_text() == f"{PAGE} of new"
    assert not Path("reports/toy.csv").exists() and Path("elsewhere/toy.csv").exists()
    assert list(artifacts.differences("toy", REPORT)) == []


DAMAGE: dict[str, Callable[[Path], object]] = {
    "none": lambda folder: None,
    "flip": lambda folder: (folder / "file").write_text("of olf"),
    "missing": lambda folder: (folder / "file").unlink(),
    "manifest": lambda folder: (folder / "manifest.json").write_bytes(b"\xff"),
    "deep": lambda folder: (folder / "manifest.json").write_text("[" * 3000 + "]" * 3000),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_whole_piece_of_the_same_is_taken_over(damage: str, tmp_path: Path) -> None:
    def taken(piece: str, fact: str) -> bool:
        job = Job(experiment, {}, folder=tmp_path / "new", earlier=OLD.place)
        return job.reuse(piece, [piece], MadeOf([], {"fact": fact}))

    experiment: Any = None
    recorder = Job(experiment, {})
    assert not recorder.reuse("file", ["file"], MadeOf([], {"fact": "old"}))
    DAMAGE[damage](make(OLD, pieces=recorder.pieces))
    (OLD.place / "extra").touch()
    assert taken("file", "old") is (damage == "none")
    assert (tmp_path / "new/file").exists() is (damage == "none")
    assert not taken("file", "other") and not taken("absent", "old")
    make(OLD)  # whatever lies there
    assert content() == "of old"


HOLD = """
from pathlib import Path; from ocm_core.pipeline.staging import making
with making(Path("artifacts/toy/encode/encode/all")):
    print("held", flush=True); input()
"""


def test_who_comes_second_says_so_waits_and_gets_there(caplog: pytest.LogCaptureFixture) -> None:
    command, env = [sys.executable, "-c", HOLD], {**os.environ, "PYTHONPATH": str(ROOT)}
    first = subprocess.Popen(command, env=env, stdin=PIPE, stdout=PIPE, text=True)
    assert first.stdout and first.stdout.readline() == "held\n"
    threading.Timer(0.3, first.kill).start()
    with making(OLD.place) as waited:
        assert waited and (first.poll() is not None or first.wait(5))
    assert "another run is making it; waiting for that one to end" in caplog.text
    with making(OLD.place) as waited:
        assert not waited


def test_a_file_system_without_locks_is_named_before_work(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = Mock(side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)))
    monkeypatch.setattr(staging.fcntl, "flock", refuse)
    said = r"encode/\.locks: this file system has no locks \(No locks"
    with pytest.raises(OcmError, match=said), making(OLD.place):
        pass


def test_a_disk_that_is_full_at_the_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    make(OLD)
    full = OSError(errno.ENOSPC, "No space left on device", str(NEW.root / "key"))
    monkeypatch.setattr(staging, "write_text", Mock(side_effect=full))
    with pytest.raises(OcmError, match=r"\.all\.staging/key: No space left .* the disk of .* free"):
        NEW.prepare()
    assert content() == "of old"
