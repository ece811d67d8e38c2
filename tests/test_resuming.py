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

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(1, dtype=torch.int64)}


def flipped(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_a_state_is_given_back_as_it_was(tmp_path: Path) -> None:
    save_state(tmp_path / "state", TENSORS, {"iteration": 3, "none": None})
    found = load_state(tmp_path / "state")
    assert found and found.facts == {"iteration": 3, "none": None}
    assert found.tensors.keys() == TENSORS.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in TENSORS.items())
    assert load_state(tmp_path / "nothing") is None


def test_no_flipped_byte_of_a_state_and_no_cut_passes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "state"
    save_state(file, TENSORS, {"iteration": 3})
    whole = file.read_bytes()
    passed = []
    for place in range(len(whole)):
        flipped(file, place)
        if load_state(file) is not None:
            passed.append(bytes([whole[place]]))
        file.write_bytes(whole[:place])
        assert load_state(file) is None
        file.write_bytes(whole)
    assert all(byte == b" " for byte in passed)  # the header is filled up with blanks
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


@pytest.mark.parametrize("name", ["zarr.json", "x/zarr.json", "index/zarr.json"])
@pytest.mark.parametrize("left", [b"", b"{", b"\xff\xfe", None, "flip"])
def test_damaged_metadata_of_a_store_are_written_again(
    tmp_path: Path, name: str, left: bytes | str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole = tmp_path / "train.zarr", plan(range(20))
    read = reader(whole, values(20, whole.shape, "float32"))
    writer.write(path, whole, read, ATTRS)
    before = digests(path)
    if left is None:
        (path / name).unlink()
    elif isinstance(left, bytes):
        (path / name).write_bytes(left)
    else:
        flipped(path / name, 60)
    done: list[range] = []
    writer.write(path, whole, lambda rows: done.append(rows) or read(rows), ATTRS)  # type: ignore[func-returns-value]
    assert digests(path) == before and done == []
    assert left is None or f"{path / name}: has changed since an interrupted run" in caplog.text


@pytest.mark.parametrize("name", ["x", "label", "index"])
def test_only_a_shard_with_a_flipped_bit_is_written_again(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole = tmp_path / "train.zarr", plan(range(20))
    read = reader(whole, values(20, whole.shape, "float32"))
    writer.write(path, whole, read, ATTRS)
    before = digests(path)
    shard = writer.shard_file(path, whole, name, range(8, 16))
    flipped(shard, 5)
    (path / "x/c/stray").write_bytes(b"of another origin")
    done: list[range] = []
    writer.write(path, whole, lambda rows: done.append(rows) or read(rows), ATTRS)  # type: ignore[func-returns-value]
    assert digests(path) == before and done == [range(8, 16)]
    assert f"{shard}: has changed since an interrupted run" in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_says_which_one_what_was_needed_and_what_is_free(
    tmp_path: Path, error: Exception
) -> None:
    full = pytest.raises(OcmError, match="No space left on device")
    with full as raised, room_for(tmp_path / "not/yet", 5_000_000_000):
        raise error
    said = str(raised.value)
    assert "5,000,000,000 bytes (5.0 GB) were to be written" in said
    assert f"the disk of {tmp_path.resolve()} has" in said and "free; free some space" in said


def test_another_error_is_handed_on_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), room_for(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")
