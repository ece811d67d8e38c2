"""Manifests prove themselves, on the smallest possible artifact."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from ocm_core.errors import OcmError
from ocm_core.pipeline import artifacts
from ocm_core.pipeline.artifacts import Key
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.staging import StagingFolder

TASK = Task("encode")
KEY = Key(parameters="a" * 64, sources="b" * 64, inputs={"fetch_data/all": "c" * 64})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder() -> Path:
    """A finished artifact with two files, a note and a piece."""
    staging = StagingFolder("toy", TASK, KEY)
    assert staging.prepare(inf)
    (staging.artifact / "sub").mkdir()
    (staging.artifact / "sub/one").write_bytes(b"one")
    (staging.artifact / "two").write_bytes(b"two")
    staging.finish({"items": 3, "share": 0.1}, {"two": "d" * 64})
    return staging.place


def test_a_finished_artifact_is_whole_and_holds_nothing_of_the_machine(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    manifest = artifacts.read_manifest(folder)
    assert list(artifacts.differences("toy", TASK)) == []
    assert set(manifest.files) == {"sub/one", "two"} and manifest.key == KEY
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "sub", "two"}
    signature = artifacts.Signature("toy", TASK, KEY, manifest.pieces, manifest.notes)
    assert artifacts.signed(signature, folder, {}).text == text
    assert str(Path.cwd()) not in text


def test_differences_are_named(folder: Path) -> None:
    (folder / "sub/one").unlink()
    (folder / "two").write_bytes(b"tvo")
    (folder / "three").write_bytes(b"")
    assert [line.split(", ")[0] for line in artifacts.differences("toy", TASK)] == [
        f"{folder}/three: extra",
        f"{folder}/sub/one: missing",
        f"{folder}/two: changed",
    ]
    with pytest.raises(OcmError, match=r"two: changed(.|\n)*--force artifacts/toy/encode/encode"):
        artifacts.checked_folder("toy", TASK)


def test_an_artifact_without_a_manifest_does_not_exist(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(OcmError, match=r"no such artifact; `snakemake .*manifest\.json` makes it"):
        artifacts.checked_folder("toy", TASK)


def test_one_changed_character_anywhere_in_a_manifest_is_damage(folder: Path) -> None:
    """Whatever it is part of: notes, versions, the key, even the layout of the file."""
    file = folder / "manifest.json"
    whole = file.read_bytes()
    for place, old in enumerate(whole):
        for new in {ord("0"), ord(" "), old ^ 1} - {old}:
            file.write_bytes(whole[:place] + bytes([new]) + whole[place + 1 :])
            with pytest.raises(OcmError, match=r"manifest\.json: damaged: .*makes it again"):
                artifacts.read_manifest(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"notes": {"items": 4}},
        {"versions": {}},
        {"key": KEY.model_copy(update={"parameters": "e" * 64}).model_dump()},
        {"pieces": {}},
        {"part": "other"},
        {"surplus": 1},
        {"files": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_value_in_a_manifest_is_damage(folder: Path, change: dict[str, Any]) -> None:
    file = folder / "manifest.json"
    tree = json.loads(file.read_text()) | change
    file.write_text(json.dumps(tree, indent=1, sort_keys=True) + "\n")
    with pytest.raises(OcmError, match="damaged"):
        artifacts.read_manifest(folder)
    assert artifacts.manifest_if_whole(folder) is None
