"""Files are replaced whole, what is resumed proves itself, a full disk is named; short messages."""

import errno
import hashlib
import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ocm_core.errors import LONGEST_MESSAGE, OcmError, shortened, unknown
from ocm_core.io.atomic import replacing, room_for, write_text
from ocm_core.io.checksums import data_files, is_intact, record_checksum, sha256_of
from ocm_core.io.fetch import _digests
from ocm_core.io.state_file import load_state, save_state
from ocm_core.store import writer
from tests.store.data import ATTRS, digests, plan, reader, values


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


def flipped(file: Path, place: int, bits: int = 1) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= bits
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
def test_a_full_disk_says_which_and_what_was_needed(tmp_path: Path, error: Exception) -> None:
    full = pytest.raises(OcmError, match=NO_SPACE)
    with full as raised, room_for(tmp_path / "not/yet", 5_000_000_000):
        raise error
    said = str(raised.value)
    assert "5,000,000,000 bytes (5.0 GB) were to be written" in said
    assert f"the disk of {tmp_path.resolve()} has" in said and "free; free some space" in said
    with pytest.raises(PermissionError), room_for(tmp_path):  # handed on as it is
        raise PermissionError(errno.EACCES, "Permission denied")


def test_a_long_message_keeps_its_ends() -> None:
    message = str(OcmError(f"x.yaml: found {'a' * 20_000}; do this"))
    assert len(message) <= LONGEST_MESSAGE
    assert message.startswith("x.yaml: found aaa") and message.endswith("aaa; do this")
    for size in range(120):
        said = shortened("x" * size, 50)
        assert said == "x" * size if size <= 50 else len(said) <= 50


def test_a_wrong_name_of_any_length_or_type() -> None:
    assert len(unknown("x" * 100_000, ["ocm"])) < 300
    assert unknown(3, ["a", 2]) == "3 is unknown; valid: 2, a"


def test_the_same_state_has_the_same_bytes(tmp_path: Path) -> None:
    """Of two entries of metadata safetensors has no order; pieces of artifacts are states."""
    files = [tmp_path / str(number) for number in range(12)]
    for file in files:
        save_state(file, {"b": torch.ones(2), "a": torch.zeros(3)}, {"z": 1, "y": [2]})
    assert len({file.read_bytes() for file in files}) == 1
