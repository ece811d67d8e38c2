"""What is not exactly the published file is refused by name, and nothing is left behind."""

import os
import pickle
import re
import socket
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from ocm_core.checkpoints.convert import WEIGHTS, extract
from ocm_core.checkpoints.registry import LAYOUTS
from ocm_core.errors import OcmError
from ocm_core.io.checksums import FileRecord

from .conftest import Door
from .files import WRITERS, weights, write
from .server import Served, serve


def test_the_recorded_digest_is_checked_before_the_file_is_opened(door: Door) -> None:
    door.lock.record("some/celeba64.pth", FileRecord("0" * 64, 5))
    for body in (door.body(), b"\x80\x02no pickle at all"):
        assert str(door.lock.path) in door.refuses(body, "expected sha256 0{64}")


def test_another_digest_than_the_expected_one(door: Door) -> None:
    found = sha256(door.place().read_bytes()).hexdigest()
    with pytest.raises(OcmError, match=f"expected sha256 {'0' * 64}, found {found}"):
        door.fetch(sha256="0" * 64)
    assert door.fetch(sha256=found)["sha256"] == found


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_a_truncated_file(legacy: bool, share: float, door: Door) -> None:
    body = door.body(legacy)
    door.refuses(body[: int(len(body) * share)], "expected a whole PyTorch file")


def test_something_else(door: Door) -> None:
    door.refuses(b"\n<!DOCTYPE html><html><title>Quota exceeded</title></html>", "a web page")
    door.refuses(b"\x1f\x8b\x08 an archive", r"found b'\\x1f\\x8b")
    door.refuses(b"", "found b'' at its head")


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
def test_a_pickle_that_runs_code_does_not_run(form: str, door: Door, tmp_path: Path) -> None:
    marker, file = tmp_path / "marker", tmp_path / "evil.pt"
    if form == "bare":
        file.write_bytes(pickle.dumps(Malicious(marker), protocol=2))
    else:
        evil = {**door.state, "conv_in.bias": Malicious(marker)}
        torch.save(evil, file, _use_new_zipfile_serialization=form == "zip")
    door.refuses(file.read_bytes(), r"a call for \w+\.system.*nothing in it")
    assert not marker.exists()
    if form == "bare":  # the test would notice: an unrestricted load does run it
        pickle.loads(file.read_bytes())
        assert marker.exists()


def test_keys_dtypes_and_values_that_do_not_fit_are_named(door: Door) -> None:
    key, whole = "mid.attn_1.q.weight", dict(door.state)
    door.state |= {"conv_in.bias": whole["conv_in.bias"].half()}
    door.refuses(door.body(), r"conv_in\.bias is torch\.float16 instead of torch\.float32")
    for value in (torch.nan, torch.inf, -torch.inf):
        door.state = {**whole, key: whole[key].clone()}
        door.state[key].view(-1)[7] = value
        door.refuses(door.body(), f"{key} has values that are not finite")
    del door.state[key]
    door.state |= {"surplus.weight": torch.zeros(1), "conv_in.bias": torch.zeros(3)}
    kinds = f"missing: {key}; unexpected: surplus.weight; misshapen: conv_in.bias"
    door.refuses(door.body(), rf"do not fit DdpmUNet: {kinds} \(3,\) instead of \(32,\)")


def test_a_zip_that_disagrees_with_its_crc_is_refused_before_it_is_trusted(door: Door) -> None:
    """One flipped bit in a tensor: keys and shapes are right, and no digest is known."""
    body = bytearray(door.body())
    body[len(body) // 2] ^= 1
    door.refuses(bytes(body), "CRC of .* is not that of its bytes")


@pytest.mark.parametrize("written", WRITERS)
@pytest.mark.parametrize("expected", LAYOUTS)
def test_each_layout_takes_its_own_and_no_other(written: str, expected: str) -> None:
    state = {"a.weight": torch.ones(2), "b.bias": torch.zeros(1)}
    content = WRITERS[written](state)
    if written == expected:
        taken = extract(expected, content, Path("x.pt"), "do this")
        assert taken.keys() == state.keys() and torch.equal(taken["a.weight"], state["a.weight"])
        return
    message = rf"^x\.pt: not of layout '{expected}': expected .*, found a .*; do this$"
    with pytest.raises(OcmError, match=message):
        extract(expected, content, Path("x.pt"), "do this")
    with pytest.raises(OcmError, match="each with values of its own"):
        extract("flat", {"a": state["a.weight"], "b": state["a.weight"]}, Path("x.pt"), "")


@pytest.mark.parametrize("content", [{}, [], [1], "text", 3, None, {"ema": {"a": 1}}, [1, 2]])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_layout_takes_what_holds_no_tensors(layout: str, content: object) -> None:
    with pytest.raises(OcmError, match=f"not of layout '{layout}'"):
        extract(layout, content, Path("x.pt"), "")


def test_no_network_and_no_such_address(door: Door, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/x.pth"
        address = re.escape(str(door.checkpoint.source().url))
        said = rf"could not be had from {url} .*refused.*{address}.*put it at {door.path}"
        with pytest.raises(OcmError, match=said):
            door.fetch(url=url)
    with serve(Served(b"gone", status=404)) as server, pytest.raises(OcmError, match="status 404"):
        door.fetch(url=server.url)
    with pytest.raises(OcmError, match="No such file"):
        door.fetch(url=(tmp_path / "absent.pt").as_uri())
    with pytest.raises(OcmError, match=r"ftp://x/y .expected a URL that begins with file, http"):
        door.fetch(url="ftp://x/y")
    assert not door.path.exists()


def test_a_refused_file_leaves_earlier_weights_alone(door: Door) -> None:
    door.place()
    door.fetch()
    before = (door.folder / WEIGHTS).read_bytes()
    write(door.checkpoint.source(), weights(door.checkpoint, seed=1), door.path)
    with pytest.raises(OcmError, match="as recorded in"):
        door.fetch()
    assert (door.folder / WEIGHTS).read_bytes() == before


def test_a_broken_lock_is_named(door: Door) -> None:
    door.place()
    for text in (b"{", b'{"some/celeba64.pth": {"sha256": "0"}}', b"\xff\xfe\x00"):
        door.lock.path.write_bytes(text)
        with pytest.raises(OcmError, match=r"checkpoints\.lock\.json: expected .* from git"):
            door.fetch()


def test_a_folder_is_named(door: Door) -> None:
    door.path.mkdir(parents=True)
    with pytest.raises(OcmError, match="expected a file, found a folder"):
        door.fetch()
    door.lock.path.mkdir()
    with pytest.raises(OcmError, match=r"checkpoints\.lock\.json: expected .*directory"):
        door.lock.entries()
