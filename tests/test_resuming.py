"""What is resumed proves itself: states, checksums, stores; and a full disk is named."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from ocm_core.errors import OcmError
from ocm_core.io.atomic import room_for
from ocm_core.io.checksums import data_files, is_intact, record_checksum
from ocm_core.io.state_file import load_state, save_state
from ocm_core.store import writer
from tests.store.data import ATTRS, digests, plan, reader, values


def flipped(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_a_state_is_given_back_as_it_was_and_no_flipped_byte_of_it_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(1, dtype=torch.int64)}
    file, facts = tmp_path / "state", {"iteration": 3, "none": None}
    assert load_state(file) is None
    save_state(file, tensors, facts)
    found = load_state(file)
    assert found and found.facts == facts and found.tensors.keys() == tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors.items())
    whole, passed = file.read_bytes(), set()
    for place in range(len(whole)):
        flipped(file, place)
        if load_state(file) is not None:
            passed.add(whole[place : place + 1])
        file.write_bytes(whole[:place])
        assert load_state(file) is None
        file.write_bytes(whole)
    assert passed <= {b" "}  # the header is filled up with blanks
    assert "damaged, and thrown away" in caplog.text


def test_a_checksum_breaks_with_the_content_and_with_the_key(tmp_path: Path) -> None:
    file = tmp_path / "piece"
    assert not is_intact(file)
    file.write_bytes(b"piece")
    assert not is_intact(file)
    record_checksum(file, "this")
    assert is_intact(file, "this") and not is_intact(file, "that")
    assert list(data_files(tmp_path)) == [file]
    flipped(file, 2)
    assert not is_intact(file, "this")


METADATA = ("zarr.json", "x/zarr.json", "index/zarr.json")
SHARDS = ("x/c/1/0/0", "label/c/1", "index/c/1")


@pytest.mark.parametrize(
    ("name", "left"),
    [(name, left) for name in METADATA for left in (b"", b"{", b"\xff\xfe", None, 60)]
    + [(name, 5) for name in SHARDS],
)
def test_only_a_damaged_file_of_a_store_is_written_again(
    tmp_path: Path, name: str, left: bytes | int | None, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole, done = tmp_path / "train.zarr", plan(range(20)), []
    read = reader(whole, values(20, whole.shape, "float32"))
    writer.write(path, whole, read, ATTRS)
    before = digests(path)
    if left is None:
        (path / name).unlink()
    elif isinstance(left, bytes):
        (path / name).write_bytes(left)
    else:
        flipped(path / name, left)
    (path / "x/c/stray").write_bytes(b"of another origin")
    writer.write(path, whole, lambda rows: done.append(rows) or read(rows), ATTRS)
    assert digests(path) == before and done == ([range(8, 16)] if name in SHARDS else [])
    assert left is None or f"{path / name}: has changed since an interrupted run" in caplog.text


NO_SPACE = "No space left on device"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, NO_SPACE), SafetensorError(f"I/O: {NO_SPACE} (os error 28)")]
)
def test_a_full_disk_says_which_one_what_was_needed_and_what_is_free(
    tmp_path: Path, error: Exception
) -> None:
    full = pytest.raises(OcmError, match=NO_SPACE)
    with full as raised, room_for(tmp_path / "not/yet", 5_000_000_000):
        raise error
    said = str(raised.value)
    assert "5,000,000,000 bytes (5.0 GB) were to be written" in said
    assert f"the disk of {tmp_path.resolve()} has" in said and "free; free some space" in said
    with pytest.raises(PermissionError), room_for(tmp_path):  # handed on as it is
        raise PermissionError(errno.EACCES, "Permission denied")
