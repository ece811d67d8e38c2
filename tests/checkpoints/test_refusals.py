"""What is not exactly the published file is refused by name, and nothing is left behind."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ocm_core.checkpoints.convert import WEIGHTS, fetch
from ocm_core.checkpoints.layouts import LAYOUTS, extract
from ocm_core.checkpoints.registry import Checkpoint
from ocm_core.errors import OcmError
from ocm_core.io.checksums import FileRecord
from ocm_core.io.fetch import Lock
from ocm_core.io.reading import open_restricted

from .files import WRITERS, StateDict, tiny, weights, write
from .server import Served, serve


@pytest.fixture
def checkpoint() -> Checkpoint:
    return tiny("celeba64")


@pytest.fixture
def state(checkpoint: Checkpoint) -> StateDict:
    return weights(checkpoint)


def body_of(checkpoint: Checkpoint, state: StateDict, tmp_path: Path) -> bytes:
    return write(checkpoint.source(), state, tmp_path / "made" / "x.pth").read_bytes()


def refused(checkpoint: Checkpoint, body: bytes, folder: Path, lock: Lock, match: str) -> str:
    """By download and by hand: the same message, the download removed, the user's file kept."""
    path = folder / checkpoint.source().file
    before = lock.path.read_bytes() if lock.path.exists() else None
    with serve(Served(body)) as server, pytest.raises(OcmError, match=match) as downloaded:
        fetch(checkpoint, folder, lock, url=server.url)
    assert list(folder.iterdir()) == []
    path.write_bytes(body)
    with pytest.raises(OcmError, match=match) as by_hand:
        fetch(checkpoint, folder, lock)
    assert list(folder.iterdir()) == [path]
    assert path.read_bytes() == body
    assert (lock.path.read_bytes() if lock.path.exists() else None) == before
    message = str(by_hand.value)
    assert message == str(downloaded.value)
    assert message.startswith(f"{path}: ")
    assert str(checkpoint.source().url) in message and f"put it at {path}" in message
    return message


def test_another_digest_than_the_recorded_one(
    checkpoint: Checkpoint, state: StateDict, folder: Path, tmp_path: Path, lock: Lock
) -> None:
    lock.record("some/celeba64.pth", FileRecord("0" * 64, 5))
    message = refused(
        checkpoint, body_of(checkpoint, state, tmp_path), folder, lock, "expected sha256 0{64}"
    )
    assert str(lock.path) in message


def test_the_digest_is_checked_before_the_file_is_opened(
    checkpoint: Checkpoint, folder: Path, lock: Lock
) -> None:
    lock.record("some/celeba64.pth", FileRecord("0" * 64, 5))
    refused(checkpoint, b"\x80\x02no pickle at all", folder, lock, "expected sha256 0{64}")


@pytest.mark.parametrize("what", ["md5", "sha256", "bytes"])
def test_another_digest_than_the_published_one(
    what: str, checkpoint: Checkpoint, state: StateDict, folder: Path, tmp_path: Path, lock: Lock
) -> None:
    wrong = {"md5": "1" * 32, "sha256": "1" * 64, "bytes": 11}[what]
    checkpoint = replace(checkpoint, sources=(replace(checkpoint.source(), **{what: wrong}),))
    body = body_of(checkpoint, state, tmp_path)
    refused(checkpoint, body, folder, lock, f"expected {what} {wrong}, found")


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_a_truncated_file(
    legacy: bool,
    share: float,
    checkpoint: Checkpoint,
    state: StateDict,
    folder: Path,
    tmp_path: Path,
    lock: Lock,
) -> None:
    file = write(checkpoint.source(), state, tmp_path / "made" / "x.pth", legacy=legacy)
    body = file.read_bytes()
    cut = body[: int(len(body) * share)]
    refused(checkpoint, cut, folder, lock, "expected a whole PyTorch file")


def test_a_web_page(checkpoint: Checkpoint, folder: Path, lock: Lock) -> None:
    page = b"\n<!DOCTYPE html><html><title>Google Drive - Quota exceeded</title></html>"
    refused(checkpoint, page, folder, lock, "found a web page")


def test_something_else(checkpoint: Checkpoint, folder: Path, lock: Lock) -> None:
    refused(checkpoint, b"\x1f\x8b\x08 an archive", folder, lock, r"found b'\\x1f\\x8b")
    (folder / checkpoint.source().file).unlink()
    refused(checkpoint, b"", folder, lock, "found b'' at its head")


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
@pytest.mark.parametrize("name", ["celeba64", "imagenet256"])
def test_a_pickle_that_runs_code_does_not_run(
    form: str, name: str, state: StateDict, folder: Path, tmp_path: Path, lock: Lock
) -> None:
    checkpoint, marker = tiny(name), tmp_path / "marker"
    file = tmp_path / "evil.pt"
    if form == "bare":
        file.write_bytes(pickle.dumps(Malicious(marker), protocol=2))
    else:
        evil = {**state, "conv_in.bias": Malicious(marker)}
        torch.save(evil, file, _use_new_zipfile_serialization=form == "zip")
    refused(checkpoint, file.read_bytes(), folder, lock, r"a call for \w+\.system.*nothing in it")
    assert not marker.exists()
    if form == "bare":  # the test would notice: an unrestricted load does run it
        pickle.loads(file.read_bytes())
        assert marker.exists()


def test_only_the_training_layout_may_hold_a_namespace(tmp_path: Path) -> None:
    torch.save(WRITERS["training_with_ema"]({"a": torch.zeros(1)}), tmp_path / "x.pt")
    open_restricted(tmp_path / "x.pt", "", LAYOUTS["training_with_ema"].allowed)
    with pytest.raises(OcmError, match=r"a call for argparse\.Namespace"):
        open_restricted(tmp_path / "x.pt", "", LAYOUTS["flat"].allowed)


def test_missing_extra_and_misshapen_keys_are_named(
    checkpoint: Checkpoint, state: StateDict, folder: Path, tmp_path: Path, lock: Lock
) -> None:
    del state["mid.attn_1.q.weight"]
    state["surplus.weight"] = torch.zeros(1)
    state["conv_in.bias"] = torch.zeros(3)
    message = refused(checkpoint, body_of(checkpoint, state, tmp_path), folder, lock, "do not fit")
    assert "missing: mid.attn_1.q.weight;" in message
    assert "unexpected: surplus.weight;" in message
    assert "misshapen: conv_in.bias (3,) instead of (32,)" in message


def test_another_dtype_is_refused(
    checkpoint: Checkpoint, state: StateDict, folder: Path, tmp_path: Path, lock: Lock
) -> None:
    state["conv_in.bias"] = state["conv_in.bias"].half()
    body = body_of(checkpoint, state, tmp_path)
    refused(checkpoint, body, folder, lock, r"conv_in\.bias is torch\.float16 instead of torch\.fl")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(
    value: float,
    checkpoint: Checkpoint,
    state: StateDict,
    folder: Path,
    tmp_path: Path,
    lock: Lock,
) -> None:
    state["mid.attn_1.q.weight"].view(-1)[7] = value
    body = body_of(checkpoint, state, tmp_path)
    refused(
        checkpoint, body, folder, lock, r"mid\.attn_1\.q\.weight has values that are not finite"
    )


@pytest.mark.parametrize("written", WRITERS)
@pytest.mark.parametrize("expected", LAYOUTS)
def test_each_layout_takes_its_own_and_no_other(written: str, expected: str) -> None:
    state = {"a.weight": torch.ones(2), "b.bias": torch.zeros(1)}
    content = WRITERS[written](state)
    if written == expected or (written, expected) == ("ema_models_states", "models_states"):
        taken = extract(expected, content, Path("x.pt"), "do this")
        assert taken.keys() == state.keys()
        assert torch.equal(taken["a.weight"], state["a.weight"]) is (written == expected)
        return
    message = rf"^x\.pt: not of layout '{expected}': expected .*, found a .*; do this$"
    with pytest.raises(OcmError, match=message):
        extract(expected, content, Path("x.pt"), "do this")


@pytest.mark.parametrize("content", [{}, [], [1], "text", 3, None, {"ema": {"a": 1}}, [1, 2]])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_layout_takes_what_holds_no_tensors(layout: str, content: object) -> None:
    with pytest.raises(OcmError, match=f"not of layout '{layout}'"):
        extract(layout, content, Path("x.pt"), "")


def test_no_network(checkpoint: Checkpoint, folder: Path, lock: Lock) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/x.pth"
        with pytest.raises(OcmError, match=r"could not be had from 127\.0\.0\.1.*refused") as error:
            fetch(checkpoint, folder, lock, url=url)
    assert str(checkpoint.source().url) in str(error.value)
    assert f"put it at {folder / checkpoint.source().file}" in str(error.value)
    assert not (folder / checkpoint.source().file).exists()


def test_no_such_address(checkpoint: Checkpoint, folder: Path, lock: Lock, tmp_path: Path) -> None:
    with serve(Served(b"gone", status=404)) as server, pytest.raises(OcmError, match="status 404"):
        fetch(checkpoint, folder, lock, url=server.url)
    with pytest.raises(OcmError, match="No such file"):
        fetch(checkpoint, folder, lock, url=(tmp_path / "absent.pt").as_uri())
    with pytest.raises(OcmError, match=r"ftp://x/y: expected a URL that begins with file, http"):
        fetch(checkpoint, folder, lock, url="ftp://x/y")
    assert not (folder / checkpoint.source().file).exists()


def test_a_source_without_an_address_says_where_to_look(
    checkpoint: Checkpoint, folder: Path, lock: Lock
) -> None:
    path = re.escape(str(folder / "ddim_celeba64.pth"))
    message = rf"{path}: no such file, .* address.*github\.com/ermongroup/ddim.*put it at {path}"
    with pytest.raises(OcmError, match=message):
        fetch(checkpoint, folder, lock, file="ddim_celeba64.pth")


def test_a_refused_file_leaves_earlier_weights_alone(
    checkpoint: Checkpoint, state: StateDict, folder: Path, lock: Lock
) -> None:
    path = write(checkpoint.source(), state, folder / checkpoint.source().file)
    fetch(checkpoint, folder, lock)
    before = hashlib.sha256((folder / WEIGHTS).read_bytes()).digest()
    write(checkpoint.source(), weights(checkpoint, seed=1), path)
    with pytest.raises(OcmError, match="as recorded in"):
        fetch(checkpoint, folder, lock)
    assert hashlib.sha256((folder / WEIGHTS).read_bytes()).digest() == before


def test_a_broken_lock_is_named(checkpoint: Checkpoint, state: StateDict, folder: Path, lock: Lock):
    write(checkpoint.source(), state, folder / checkpoint.source().file)
    for text in (b"{", b'{"some/celeba64.pth": {"sha256": "0"}}', b"\xff\xfe\x00"):
        lock.path.write_bytes(text)
        with pytest.raises(OcmError, match=r"checkpoints\.lock\.json: expected .* from git"):
            fetch(checkpoint, folder, lock)


def test_a_folder_is_named(checkpoint: Checkpoint, folder: Path, lock: Lock) -> None:
    (folder / checkpoint.source().file).mkdir(parents=True)
    with pytest.raises(OcmError, match="expected a file, found a folder"):
        fetch(checkpoint, folder, lock)
    lock.path.mkdir()
    with pytest.raises(OcmError, match=r"checkpoints\.lock\.json: expected a file, found a folder"):
        lock.recorded("some/file")


def test_a_zip_that_disagrees_with_its_crc_is_refused_before_it_is_trusted(
    checkpoint: Checkpoint, state: StateDict, folder: Path, lock: Lock, tmp_path: Path
) -> None:
    """One flipped bit in a tensor: keys and shapes are right, and no digest is known."""
    body = bytearray(body_of(checkpoint, state, tmp_path))
    body[len(body) // 2] ^= 1
    refused(checkpoint, bytes(body), folder, lock, "CRC of .* is not that of its bytes")


def test_another_digest_than_the_expected_one(
    checkpoint: Checkpoint, state: StateDict, folder: Path, lock: Lock
) -> None:
    path = write(checkpoint.source(), state, folder / checkpoint.source().file)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(OcmError, match=f"expected sha256 {'0' * 64}, found {found}"):
        fetch(checkpoint, folder, lock, sha256="0" * 64)
    assert fetch(checkpoint, folder, lock, sha256=found)["sha256"] == found
