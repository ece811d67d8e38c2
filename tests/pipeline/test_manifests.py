"""Manifests, resumption and locks, on the smallest possible artifact."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline import manifests
from ocm_core.pipeline.table import Task

TASK = Task("encode", "all")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder() -> Path:
    """A finished artifact with two files."""
    folder = manifests.folder_of("toy", TASK)
    manifests.prepare(folder, "key")
    (folder / "sub").mkdir()
    (folder / "sub/one").write_bytes(b"one")
    (folder / "two").write_bytes(b"two")
    manifests.finish("toy", TASK, [], {"key": "key"})
    return folder


def test_finished_artifact_is_whole_and_its_manifest_repeats(folder: Path) -> None:
    first = (folder / "manifest.json").read_bytes()
    assert list(manifests.differences("toy", TASK)) == []
    assert set(json.loads(first)["files"]) == {"sub/one", "two"}
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "sub", "two"}
    (folder / manifests.WORKING).write_text("")
    manifests.finish("toy", TASK, [], {"key": "key"})
    assert (folder / "manifest.json").read_bytes() == first


def test_differences_are_named(folder: Path) -> None:
    (folder / "sub/one").unlink()
    (folder / "two").write_bytes(b"tvo")
    (folder / "three").write_bytes(b"")
    assert [line.split(", ")[0] for line in manifests.differences("toy", TASK)] == [
        f"{folder}/three: extra",
        f"{folder}/sub/one: missing",
        f"{folder}/two: changed",
    ]
    with pytest.raises(OcmError, match=r"two: changed(.|\n)*--force artifacts/toy/encode/all"):
        manifests.checked_folder("toy", TASK)


def test_artifact_without_manifest_does_not_exist(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(OcmError, match=r"no such artifact; `snakemake .*manifest\.json` makes it"):
        manifests.checked_folder("toy", TASK)


@pytest.mark.parametrize(("key", "kept"), [("same", True), ("other", False)])
def test_only_the_same_key_resumes(key: str, kept: bool) -> None:
    folder = manifests.folder_of("toy", TASK)
    manifests.prepare(folder, "same")
    (folder / "checkpoint").write_text("half")
    manifests.prepare(folder, key)
    assert (folder / "checkpoint").exists() == kept


def test_leftovers_without_a_key_are_never_resumed(folder: Path) -> None:
    manifests.prepare(folder, "key")
    assert [path.name for path in folder.iterdir()] == [manifests.WORKING]


def test_second_writer_is_refused_until_the_first_has_died() -> None:
    code = (
        "import sys; from ocm_core.pipeline import manifests as a, table\n"
        "with a.sole_writer('toy', table.Task('encode', 'all')): print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", code]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout and first.stdout.readline() == "held\n"
    refused = pytest.raises(OcmError, match=r"artifacts/toy/encode/all: another process is writing")
    with refused, manifests.sole_writer("toy", TASK):
        pass
    first.kill()
    first.wait()
    with manifests.sole_writer("toy", TASK):
        pass
