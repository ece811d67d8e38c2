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
from ocm_core.io.checksums import sha256_of
from ocm_core.io.fetch import _digests
from ocm_core.io.reading import refuse_web_page


def test_a_file_is_replaced_when_the_block_ends_without_an_error(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_text(path, "old")
    path.with_name("file.txt.tmp").write_text("left by a killed process")
    with replacing(path) as temporary, temporary.open("a") as file:
        file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    with pytest.raises(FileNotFoundError), replacing(path):
        pass  # writes nothing
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    """safetensors makes files that only their owner can read."""
    path, before = tmp_path / "x.safetensors", os.umask(0o027)
    try:
        with replacing(path) as temporary:
            save_file({"x": torch.ones(2)}, temporary)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640
    assert load_file(path)["x"].sum() == 2


def test_digests_are_those_of_hashlib(tmp_path: Path) -> None:
    path, content = tmp_path / "x", bytes(range(256)) * 20_000
    path.write_bytes(content)
    sha256, md5 = hashlib.sha256(content).hexdigest(), hashlib.md5(content).hexdigest()
    assert sha256_of(path) == sha256 and _digests(path) == [sha256, md5]


def test_a_web_page_is_told_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04<html>")
    refuse_web_page(path, "an archive", "do this")
    path.write_bytes(b"\n <!DOCTYPE html>")
    with pytest.raises(OcmError, match=r"expected an archive, found a web page .*; do this"):
        refuse_web_page(path, "an archive", "do this")
