"""Manifests, on the smallest possible artifact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline import manifests
from ocm_core.pipeline.table import Task
from ocm_core.pipeline.working import WorkingFolder

TASK = Task("encode", "all")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder() -> Path:
    """A finished artifact with two files."""
    work = WorkingFolder("toy", TASK, {})
    assert work.prepare(0)
    (work.artifact / "sub").mkdir()
    (work.artifact / "sub/one").write_bytes(b"one")
    (work.artifact / "two").write_bytes(b"two")
    work.finish({})
    return work.place


def test_finished_artifact_is_whole_and_its_manifest_repeats(folder: Path) -> None:
    first = (folder / "manifest.json").read_bytes()
    assert list(manifests.differences("toy", TASK)) == []
    assert set(json.loads(first)["files"]) == {"sub/one", "two"}
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "sub", "two"}
    facts = {"key": manifests.text_digest({}), "notes": {}}
    assert manifests.signed("toy", TASK, folder, {}, facts).encode() == first


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
