"""From every source of every entry, at tiny size, to the same tensors under our keys."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ocm_core.checkpoints.convert import PROVENANCE, WEIGHTS, fetch
from ocm_core.checkpoints.registry import CHECKPOINTS, Checkpoint
from ocm_core.cli import main
from ocm_core.io.checksums import FileRecord
from ocm_core.io.fetch import Lock
from ocm_core.networks.keys import export_published

from .files import StateDict, tiny, weights, write
from .server import Served, serve

SOURCES = [(name, source.file) for name, entry in CHECKPOINTS.items() for source in entry.sources]
every_source = pytest.mark.parametrize(("name", "file"), SOURCES)


def assert_converted(checkpoint: Checkpoint, file: Path, expected: StateDict) -> None:
    network = checkpoint.network()
    network.load_state_dict(load_file(file))
    exported = export_published(network)
    assert exported.keys() == expected.keys()
    assert all(torch.equal(exported[key], expected[key]) for key in expected)


@every_source
@pytest.mark.parametrize("way", ["http", "file", "by_hand", "by_hand_legacy"])
def test_every_published_file_is_converted(
    name: str, file: str, way: str, folder: Path, tmp_path: Path, lock: Lock
) -> None:
    checkpoint = tiny(name)
    source, state = checkpoint.source(file), weights(checkpoint)
    there = folder if way.startswith("by_hand") else tmp_path / "elsewhere"
    path = write(source, state, there / file, legacy=way == "by_hand_legacy")
    body = path.read_bytes()
    if way == "http":
        with serve(Served(body)) as server:
            provenance = fetch(checkpoint, folder, lock, file=file, url=server.url)
    elif way == "file":
        provenance = fetch(checkpoint, folder, lock, file=file, url=path.as_uri())
    else:
        provenance = fetch(checkpoint, folder, lock)
        assert provenance["url"] == source.url
    assert_converted(checkpoint, folder / WEIGHTS, state)
    assert sorted(item.name for item in folder.iterdir()) == sorted([file, WEIGHTS])
    assert provenance["sha256"] == hashlib.sha256(body).hexdigest()
    assert provenance["layout"] == source.layout and provenance["licence"] == source.licence


def test_provenance_travels_with_the_weights(folder: Path, lock: Lock) -> None:
    checkpoint = tiny("imagenet256")
    write(checkpoint.source(), weights(checkpoint), folder / checkpoint.source().file)
    provenance = fetch(checkpoint, folder, lock)
    with safe_open(folder / WEIGHTS, "pt") as file:
        assert json.loads(file.metadata()[PROVENANCE]) == provenance
    assert provenance["licence"] == "CC-BY-NC"


def test_the_record_of_an_address_has_no_password(folder: Path, lock: Lock) -> None:
    checkpoint = tiny("celeba64")
    write(checkpoint.source(), weights(checkpoint), folder / checkpoint.source().file)
    url = "https://user:hunter2@host/x.pt?id=7&X-Amz-Signature=hunter2"
    provenance = fetch(checkpoint, folder, lock, url=url, file=checkpoint.source().file)
    assert provenance["url"] == "https://host/x.pt?id=7&X-Amz-Signature=..."
    assert b"hunter2" not in (folder / WEIGHTS).read_bytes()


def test_the_target_may_lie_elsewhere(folder: Path, tmp_path: Path, lock: Lock) -> None:
    checkpoint = tiny("celeba64")
    state = weights(checkpoint)
    write(checkpoint.source(), state, folder / checkpoint.source().file)
    fetch(checkpoint, folder, lock, target=tmp_path / "artifacts" / "network.safetensors")
    assert_converted(checkpoint, tmp_path / "artifacts" / "network.safetensors", state)
    assert not (folder / WEIGHTS).exists()


def test_the_first_fetch_records_and_the_second_agrees(folder: Path, lock: Lock) -> None:
    checkpoint = tiny("cifar10_cs")
    path = write(checkpoint.source(), weights(checkpoint), folder / checkpoint.source().file)
    first = fetch(checkpoint, folder, lock)
    recorded = json.loads(lock.path.read_text())
    expected = {"sha256": first["sha256"], "bytes": path.stat().st_size}
    assert recorded == {"some/cifar10_cs.pth": expected}
    assert fetch(checkpoint, folder, lock) == first
    assert json.loads(lock.path.read_text()) == recorded


def test_provenance_does_not_depend_on_how_the_file_came(folder: Path, lock: Lock) -> None:
    checkpoint = tiny("imagenet64")
    with serve(Served(b"")) as server:
        path = write(checkpoint.source(), weights(checkpoint), folder / checkpoint.source().file)
        server.body = path.read_bytes()
        by_hand = fetch(checkpoint, folder, lock, url=server.url)
        path.unlink()
        assert server.sent == []
        assert fetch(checkpoint, folder, lock, url=server.url) == by_hand
        assert server.sent == [path.stat().st_size]


def test_records_made_side_by_side_are_all_kept(lock: Lock) -> None:
    keys = [f"some/{i}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: lock.record(key, FileRecord(key, 1)), keys))
    assert [lock.recorded(key) for key in keys] == [FileRecord(key, 1) for key in keys]


def test_the_command_fetches_into_the_documented_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoint = tiny("lsun_bedroom")
    state = weights(checkpoint)
    path = write(checkpoint.source(), state, tmp_path / "elsewhere" / "x.ckpt")
    monkeypatch.setattr("ocm_core.checkpoints.registry.CHECKPOINTS", {checkpoint.name: checkpoint})
    monkeypatch.chdir(tmp_path)
    assert main(["fetch", "lsun_bedroom", "--url", path.as_uri()]) == 0
    assert_converted(checkpoint, tmp_path / "checkpoints/lsun_bedroom" / WEIGHTS, state)
    assert "licence of the weights: MIT" in capsys.readouterr().out
    assert "taken on trust" in caplog.text
    caplog.clear()
    assert main(["fetch", "lsun_bedroom", "--url", path.as_uri()]) == 0
    assert not caplog.text  # its digest is known by now
    assert main(["fetch", "lsun_bedroom", "--expect", "md5=0"]) == 1
    assert "expected sha256= and 64 hexadecimal digits" in capsys.readouterr().err
    assert "lsun_bedroom/model-2388000.ckpt" in (tmp_path / "checkpoints.lock.json").read_text()


def test_a_published_md5_is_checked_too(folder: Path, lock: Lock) -> None:
    checkpoint = tiny("lsun_bedroom")
    path = write(checkpoint.source(), weights(checkpoint), folder / checkpoint.source().file)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    checkpoint = replace(checkpoint, sources=(replace(checkpoint.source(), md5=md5),))
    assert fetch(checkpoint, folder, lock)["bytes"] == path.stat().st_size
