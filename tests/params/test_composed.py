"""What was composed before is not composed again, unless a file or the code has changed since."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ocm_core.params import compose as composing
from ocm_core.params.resolved import overlay, resolved_file
from ocm_core.pipeline import composed as remembered
from ocm_core.pipeline.composed import REMEMBERED, composed
from ocm_core.schema.experiment import Experiment

ROOT = Path(__file__).parents[2]
NAMES = ["toy_mog40", "toy_mog9", "toy_mog9_paper"]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are composed, in a checkout in which all were composed once."""
    shutil.copytree(ROOT / "params", tmp_path / "params")
    monkeypatch.chdir(tmp_path)
    found: list[str] = []
    monkeypatch.setattr(composing, "compose", _noting(composing.compose, found))
    composed(NAMES)
    assert found == NAMES
    found.clear()
    return found


def _noting(compose: Callable[[str], Experiment], found: list[str]) -> Callable[[str], Experiment]:
    def noted(name: str) -> Experiment:
        found.append(name)
        return compose(name)

    return noted


def test_what_is_remembered_is_what_is_committed(asked: list[str]) -> None:
    texts = composed(NAMES)
    assert asked == []
    assert texts == {name: (ROOT / resolved_file(name)).read_text() for name in NAMES}


@pytest.mark.parametrize(
    ("edited", "stale"),
    [
        ("toy_mog40", ["toy_mog40"]),
        ("toy_mog9", ["toy_mog9", "toy_mog9_paper"]),  # the second is laid over the first
    ],
)
def test_an_edit_concerns_who_is_composed_from_the_file(
    asked: list[str], edited: str, stale: list[str]
) -> None:
    with overlay(edited).open("a") as file:
        file.write("# another word\n")
    composed(NAMES)
    assert asked == stale
    assert len(list(REMEMBERED.glob("*/*.yaml"))) == len(NAMES)


def test_other_code_composes_everything_anew(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "_code", lambda: "another")
    composed(NAMES)
    assert asked == NAMES
    assert [folder.name for folder in REMEMBERED.iterdir()] == ["another"]


@pytest.mark.parametrize("left", [b"", b"\xff", None, "flip"])
def test_damage_is_composed_again(asked: list[str], left: bytes | str | None) -> None:
    (file,) = REMEMBERED.glob("*/toy_mog9.yaml")
    whole = file.read_bytes()
    if left is None:
        file.unlink()
    else:
        file.write_bytes(left if isinstance(left, bytes) else whole.replace(b"seed: 0", b"seed: 1"))
    composed(NAMES)
    assert asked == ["toy_mog9"] and file.read_bytes() == whole


def test_where_nothing_can_be_kept_all_is_composed_each_time(asked: list[str]) -> None:
    expected = composed(NAMES)
    shutil.rmtree(REMEMBERED.parent)
    REMEMBERED.parent.write_text("in the way")
    assert composed(NAMES) == expected
    assert asked == NAMES
