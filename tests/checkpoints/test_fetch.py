"""From every source of every entry, at tiny size, to the same tensors under our keys."""

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ocm_core.checkpoints.convert import PROVENANCE, WEIGHTS
from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.cli import main
from ocm_core.io.checksums import FileRecord
from ocm_core.networks.keys import export_published

from .conftest import Door
from .files import write
from .server import Served, serve

SOURCES = [(name, source.file) for name, entry in CHECKPOINTS.items() for source in entry.sources]


def assert_converted(door: Door, file: Path) -> None:
    network = door.checkpoint.network()
    network.load_state_dict(load_file(file))
    exported = export_published(network)
    assert exported.keys() == door.state.keys()
    assert all(torch.equal(exported[key], door.state[key]) for key in door.state)


@pytest.mark.parametrize(("door", "file"), SOURCES, indirect=["door"])
@pytest.mark.parametrize("way", ["http", "file", "by_hand", "by_hand_legacy"])
def test_every_published_file_is_converted(door: Door, file: str, way: str, tmp_path: Path) -> None:
    source, by_hand = door.checkpoint.source(file), way.startswith("by_hand")
    there = door.folder if by_hand else tmp_path / "elsewhere"
    path = write(source, door.state, there / file, legacy=way == "by_hand_legacy")
    body = path.read_bytes()
    if way == "http":
        with serve(Served(body)) as server:
            provenance = door.fetch(file=file, url=server.url)
    elif way == "file":
        provenance = door.fetch(file=file, url=path.as_uri())
    else:
        provenance = door.fetch()
        assert provenance["url"] == source.url
    assert_converted(door, door.folder / WEIGHTS)
    assert sorted(item.name for item in door.folder.iterdir()) == sorted([file, WEIGHTS])
    assert provenance["sha256"] == sha256(body).hexdigest()
    assert provenance["layout"] == source.layout and provenance["licence"] == source.licence


def test_provenance_travels_with_the_weights_and_has_no_password(
    door: Door, tmp_path: Path
) -> None:
    door.place()
    url = "https://user:hunter2@host/x.pt?id=7&X-Amz-Signature=hunter2"
    target = tmp_path / "artifacts" / "network.safetensors"
    provenance = door.fetch(url=url, file=door.path.name, target=target)
    assert_converted(door, target)
    assert provenance["url"] == "https://host/x.pt?id=7&X-Amz-Signature=..."
    assert b"hunter2" not in target.read_bytes() and not (door.folder / WEIGHTS).exists()
    with safe_open(target, "pt") as file:
        assert json.loads(file.metadata()[PROVENANCE]) == provenance


def test_provenance_does_not_depend_on_how_the_file_came(door: Door) -> None:
    with serve(Served(door.place().read_bytes())) as server:
        by_hand = door.fetch(url=server.url)
        recorded = json.loads(door.lock.path.read_text())
        expected = {"sha256": by_hand["sha256"], "bytes": len(server.body)}
        assert recorded == {"some/celeba64.pth": expected} and server.sent == []
        door.path.unlink()
        assert door.fetch(url=server.url) == by_hand
        assert server.sent == [len(server.body)]
    assert json.loads(door.lock.path.read_text()) == recorded


def test_records_made_side_by_side_are_all_kept(door: Door) -> None:
    keys = [f"some/{i}" for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: door.lock.record(key, FileRecord(key, 1)), keys))
    assert door.lock.entries() == {key: FileRecord(key, 1) for key in keys}


@pytest.mark.parametrize("door", ["lsun_bedroom"], indirect=True)
def test_the_command_fetches_into_the_documented_place(
    door: Door,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = write(door.checkpoint.source(), door.state, tmp_path / "elsewhere" / "x.ckpt")
    entries = {"lsun_bedroom": door.checkpoint}
    monkeypatch.setattr("ocm_core.checkpoints.registry.CHECKPOINTS", entries)
    monkeypatch.chdir(tmp_path)
    assert main(["fetch", "lsun_bedroom", "--url", path.as_uri()]) == 0
    assert_converted(door, tmp_path / "checkpoints/lsun_bedroom" / WEIGHTS)
    assert "licence of the weights: MIT" in capsys.readouterr().out
    assert "taken on trust" in caplog.text
    caplog.clear()
    assert main(["fetch", "lsun_bedroom", "--url", path.as_uri()]) == 0
    assert not caplog.text  # its digest is known by now
    assert main(["fetch", "lsun_bedroom", "--expect", "md5=0"]) == 1
    assert "expected sha256= and 64 hexadecimal digits" in capsys.readouterr().err
    assert "lsun_bedroom/model-2388000.ckpt" in (tmp_path / "checkpoints.lock.json").read_text()
