"""Files are replaced whole, with ordinary permissions, and digests are those of hashlib."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ocm_core.errors import OcmError
from ocm_core.io.atomic import replacing, write_text
from ocm_core.io.checksums import checksums_of, sha256_of
from ocm_core.io.fetch import refuse_web_page


@pytest.fixture
def umask() -> int:
    mask = os.umask(0o027)
    yield 0o027
    os.umask(mask)


def test_a_file_is_replaced_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("ne")
        assert path.read_text() == "old"
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    (tmp_path / "file.txt.tmp").write_text("rest")
    with replacing(path) as temporary, temporary.open("a") as file:
        file.write("new")
    assert path.read_text() == "new"


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "file.txt"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_any_new_file(tmp_path: Path, umask: int) -> None:
    """safetensors makes files that only their owner can read."""
    path = tmp_path / "x.safetensors"
    with replacing(path) as temporary:
        save_file({"x": torch.ones(2)}, temporary)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert load_file(path)["x"].sum() == 2


def test_digests_are_those_of_hashlib(tmp_path: Path) -> None:
    path, content = tmp_path / "x", bytes(range(256)) * 20_000
    path.write_bytes(content)
    assert sha256_of(path) == hashlib.sha256(content).hexdigest()
    seen: list[int] = []
    found = checksums_of(path, "sha256", "md5", progress=seen.append)
    assert found == (sha256_of(path), hashlib.md5(content).hexdigest())
    assert seen[-1] == len(content) and len(seen) == 2


def test_a_web_page_is_told_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04<html>")
    refuse_web_page(path, "an archive", "do this")
    path.write_bytes(b"\n <!DOCTYPE html>")
    with pytest.raises(OcmError, match=r"expected an archive, found a web page .*; do this"):
        refuse_web_page(path, "an archive", "do this")
