"""A generated file knows what it was made from, and whether that is still so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.params.stamps import digests, edited, stamped

BODY = "name: digits\nseed: 0\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(f"{name}: 1\n")
    made = tmp_path / "made.yaml"
    made.write_text(
        stamped("Generated.", digests([tmp_path / "a.yaml", tmp_path / "b.yaml"]), BODY)
    )
    return made


def test_nothing_was_edited(file: Path) -> None:
    assert edited(file) == []
    assert file.read_text().endswith(f"what follows\n{BODY}")


@pytest.mark.parametrize("name", ["a.yaml", "b.yaml"])
def test_an_edited_or_missing_origin_is_named(file: Path, name: str) -> None:
    origin = file.with_name(name)
    origin.write_text(f"{name}: 2\n")
    assert edited(file) == [origin]
    origin.unlink()
    assert edited(file) == [origin]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seed: 0", "seed: 1"),
        ("name: digits", "# 0123456789abcdef what follows\nname: digits"),
        ("# Generated.\n", "# Generated.\nseed: 1\n"),
        (" what follows", " all that follows"),
    ],
    ids=["value", "stamp", "head", "unstamped"],
)
def test_an_edit_of_the_file_itself_is_seen(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    assert edited(file) == [file]


@pytest.mark.parametrize("content", [b"", b"name: digits\n", b"\xff\xfe# 0123456789abcdef x\n"])
def test_a_file_without_stamps_is_an_edited_one(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert edited(file) == [file]
    file.unlink()
    assert edited(file) == [file]
