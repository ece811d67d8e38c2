"""No archive is opened before it is the right one, and a wrong one says what to do."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ocm_core.errors import OcmError
from ocm_core.io import archives as library
from ocm_core.io.archives import Archive, Located, locate, unpacked
from ocm_core.io.checksums import FileRecord
from ocm_core.io.fetch import Lock

from ..checkpoints.server import Served, serve
from .conftest import ARCHIVED

BODY = bytes(range(250)) * 1000
SOME = Archive(kind="some", file="some.zip", page="https://some.page", terms="be kind")


@pytest.fixture
def path(archives: Path) -> Path:
    return archives / "some" / "some.zip"


def put(path: Path, body: bytes = BODY) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_a_file_put_by_hand_is_taken_and_recorded(archives: Path, path: Path) -> None:
    put(path)
    sha256 = hashlib.sha256(BODY).hexdigest()
    assert locate(SOME, archives) == Located(path, sha256)
    recorded = json.loads((archives.parent / "datasets.lock.json").read_text())
    assert recorded == {"some/some.zip": {"sha256": sha256, "bytes": len(BODY)}}


def test_a_downloaded_file_is_the_same(archives: Path, path: Path) -> None:
    with serve(Served(BODY)) as server:
        archive = replace(SOME, url=server.url)
        located = locate(archive, archives)
        assert locate(archive, archives) == located
        assert server.sent == [len(BODY)]
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["some.zip", "some.zip.checked.json"]
    path.unlink()
    put(path)
    assert locate(SOME, archives) == located


def test_a_file_that_needs_an_account(archives: Path, path: Path) -> None:
    with pytest.raises(OcmError) as error:
        locate(SOME, archives)
    assert str(error.value) == (
        f"{path}: not there, and cannot be downloaded; fetch it by hand from https://some.page,"
        f" and put it at {path} (terms: be kind)"
    )
    assert not archives.exists()


def refused(archive: Archive, body: bytes, archives: Path, match: str) -> str:
    """By download and by hand: the same message, the download removed, the user's file kept."""
    path = archives / archive.kind / archive.file
    lock = archives.parent / "datasets.lock.json"
    before = lock.read_bytes() if lock.exists() else None
    with serve(Served(body)) as server:
        archive = replace(archive, url=server.url)
        with pytest.raises(OcmError, match=match) as downloaded:
            locate(archive, archives)
    assert names(path.parent) == []
    put(path, body)
    with pytest.raises(OcmError, match=match) as by_hand:
        locate(archive, archives)
    assert names(path.parent) == [path.name]
    assert (lock.read_bytes() if lock.exists() else None) == before
    message = str(by_hand.value)
    assert message == str(downloaded.value)
    assert message.startswith(f"{path}: ") and archive.remedy(path) in message
    return message


@pytest.mark.parametrize("what", ["md5", "sha256", "bytes"])
def test_another_digest_than_the_published_one(what: str, archives: Path) -> None:
    wrong = {"md5": "1" * 32, "sha256": "1" * 64, "bytes": 11}[what]
    archive = replace(SOME, **{what: wrong})
    refused(archive, BODY, archives, f"expected {what} {wrong} as published, found ")


def test_another_digest_than_the_recorded_one(archives: Path) -> None:
    archives.mkdir()
    Lock(archives.parent / "datasets.lock.json").record("some/some.zip", FileRecord("0" * 64, 5))
    message = refused(SOME, BODY, archives, "expected sha256 0{64}")
    assert "delete the entry 'some/some.zip'" in message


def test_a_web_page(archives: Path) -> None:
    page = b"\n<!DOCTYPE html><title>Google Drive - Quota exceeded</title>"
    refused(SOME, page, archives, "expected an archive, found a web page")


def test_no_network(archives: Path, path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/some.zip"
        with pytest.raises(OcmError, match=rf"refused.*by hand from {url}, see .*put it at {path}"):
            locate(replace(SOME, url=url), archives)
    assert names(path.parent) == []


def test_a_file_is_read_whole_once(
    archives: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    whole = library._checksums
    monkeypatch.setattr(library, "_checksums", lambda path: (read.append(path), whole(path))[1])
    put(path)
    first = locate(SOME, archives)
    assert locate(SOME, archives) == first and len(read) == 1
    os.utime(path, ns=(1, 1))
    assert locate(SOME, archives) == first and len(read) == 2
    path.with_name("some.zip.checked.json").write_text('{"bytes": 25')
    assert locate(SOME, archives) == first and len(read) == 3
    put(path, BODY + b"more")
    with pytest.raises(OcmError, match="as recorded in"):
        locate(SOME, archives)


def test_what_is_remembered_is_still_compared(archives: Path, path: Path) -> None:
    put(path)
    locate(SOME, archives)
    with pytest.raises(OcmError, match="expected md5 0 as published"):
        locate(replace(SOME, md5="0"), archives)


def test_many_at_once_download_once(archives: Path) -> None:
    with serve(Served(BODY)) as server, ThreadPoolExecutor(6) as pool:
        archive = replace(SOME, url=server.url)
        located = list(pool.map(lambda _: locate(archive, archives), range(6)))
        assert server.sent == [len(BODY)]
    assert len(set(located)) == 1


def test_many_at_once_unpack_once(archives: Path, path: Path) -> None:
    put(path)
    archive, made = locate(SOME, archives), []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "content").write_bytes(BODY)

    with ThreadPoolExecutor(6) as pool:
        folders = list(pool.map(lambda _: unpacked(archive, make), range(6)))
    assert len(made) == 1 and len(set(folders)) == 1
    assert (folders[0] / "content").read_bytes() == BODY
    assert names(folders[0].parent) == [folders[0].name]


def test_half_unpacked_folders_are_not_used(archives: Path, path: Path) -> None:
    put(path)
    archive = locate(SOME, archives)

    def fail(folder: Path) -> None:
        (folder / "half").write_bytes(BODY)
        raise OcmError("broken off")

    with pytest.raises(OcmError, match="broken off"):
        unpacked(archive, fail)
    assert names(path.parent / "unpacked") == []
    left = path.parent / "unpacked" / f"some.zip-{archive.sha256[:16]}.tmp"
    left.mkdir()
    (left / "half").write_bytes(BODY)  # of a process that was killed
    folder = unpacked(archive, lambda folder: (folder / "whole").touch())
    assert names(folder) == ["whole"] and not left.exists()


@pytest.mark.parametrize("kind", ARCHIVED)
def test_what_is_declared_is_usable(kind: str) -> None:
    named = import_module(f"ocm_core.datasets.{kind}").ARCHIVES.values()
    declared = [form for archive in named for form in (archive, archive.instead) if form]
    assert len({archive.file for archive in declared}) == len(declared)
    for archive in declared:
        assert archive.kind == kind
        assert archive.terms and urlsplit(archive.page).scheme == "https"
        assert archive.url is None or urlsplit(archive.url).scheme in ("http", "https")
        assert archive.sha256 or archive.md5
        assert all(len(d) == n for d, n in ((archive.sha256, 64), (archive.md5, 32)) if d)
