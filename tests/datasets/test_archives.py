"""No archive is opened before it is the right one, and a wrong one says what to do.

Our walk over an LMDB file finds what LMDB itself finds, and survives what LMDB does not.
"""

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis.strategies import binary, dictionaries, integers, lists

from ocm_core.errors import OcmError
from ocm_core.io import fetch
from ocm_core.io.archives import Archive, Located, locate, unpacked
from ocm_core.io.checksums import FileRecord
from ocm_core.io.lmdb_file import lmdb_ranges

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


def test_a_file_put_by_hand_or_downloaded_is_taken_and_recorded(archives: Path, path: Path) -> None:
    sha256 = hashlib.sha256(BODY).hexdigest()
    with serve(Served(BODY)) as server:
        archive = replace(SOME, url=server.url)
        assert locate(archive, archives) == locate(archive, archives) == Located(path, sha256)
        assert server.sent == [len(BODY)]
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["some.zip", "some.zip.checked.json"]
    lock = archives.parent / "datasets.lock.json"
    assert json.loads(lock.read_text()) == {"some/some.zip": {"sha256": sha256, "bytes": len(BODY)}}
    path.unlink()
    put(path)
    assert locate(SOME, archives) == Located(path, sha256)


def test_a_file_that_needs_an_account(archives: Path, path: Path) -> None:
    said = "no such file, and no direct address is known; fetch it by hand from https://some.page,"
    with pytest.raises(OcmError, match=rf"{path}: {said} and put it at {path} .terms: be kind"):
        locate(SOME, archives)
    assert not archives.exists()


PAGE = b"\n<!DOCTYPE html><title>Google Drive - Quota exceeded</title>"
OTHER = FileRecord("0" * 64, 5)
REFUSED = {
    "md5": (replace(SOME, md5="1" * 32), BODY, "expected md5 1{32}, found "),
    "sha256": (replace(SOME, sha256="1" * 64), BODY, "expected sha256 1{64}, found "),
    "bytes": (replace(SOME, bytes=11), BODY, "expected bytes 11, found 250000"),
    "record": (SOME, BODY, "expected sha256 0{64} .* delete the entry 'some/some.zip'"),
    "page": (SOME, PAGE, "found a web page"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_another_file_than_the_published_one(what: str, archives: Path, path: Path) -> None:
    """By download and by hand: the same message, the download removed, the user's file kept."""
    archive, body, match = REFUSED[what]
    lock = archives.parent / "datasets.lock.json"
    fetch.Lock(lock).record(f"some/{'some' if what == 'record' else 'other'}.zip", OTHER)
    before = lock.read_bytes()
    with serve(Served(body)) as server:
        archive = replace(archive, url=server.url)
        with pytest.raises(OcmError, match=match) as downloaded:
            locate(archive, archives)
    assert names(path.parent) == []
    put(path, body)
    with pytest.raises(OcmError, match=match) as by_hand:
        locate(archive, archives)
    assert names(path.parent) == [path.name]
    assert lock.read_bytes() == before
    assert str(by_hand.value) == str(downloaded.value)
    assert str(by_hand.value).startswith(f"{path}: ") and archive.remedy(path) in str(by_hand.value)


def test_a_file_is_read_once(archives: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    whole = fetch._digests
    monkeypatch.setattr(fetch, "_digests", lambda path: (read.append(path), whole(path))[1])
    put(path)
    first = locate(SOME, archives)
    assert locate(SOME, archives) == first and len(read) == 1
    with pytest.raises(OcmError, match="expected md5 0, found"):  # still compared
        locate(replace(SOME, md5="0"), archives)
    assert len(read) == 1
    os.utime(path, ns=(1, 1))
    assert locate(SOME, archives) == first and len(read) == 2
    path.with_name("some.zip.checked.json").write_text('{"bytes": 25')
    assert locate(SOME, archives) == first and len(read) == 3
    put(path, BODY + b"more")
    with pytest.raises(OcmError, match="as recorded in"):
        locate(SOME, archives)


def test_many_at_once_download_and_unpack_once(archives: Path) -> None:
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "content").write_bytes(BODY)

    with serve(Served(BODY)) as server, ThreadPoolExecutor(6) as pool:
        archive = replace(SOME, url=server.url)
        located = set(pool.map(lambda _: locate(archive, archives), range(6)))
        assert server.sent == [len(BODY)] and len(located) == 1
        found = located.pop()
        folders = set(pool.map(lambda _: unpacked(found, make), range(6)))
    (folder,) = folders
    assert len(made) == 1 and (folder / "content").read_bytes() == BODY
    assert names(folder.parent) == [folder.name]


def test_half_unpacked_folders_are_not_used(archives: Path, path: Path) -> None:
    put(path)
    archive = locate(SOME, archives)
    with pytest.raises(FileNotFoundError):
        unpacked(archive, lambda folder: [(folder / "half").touch(), (folder / "no").unlink()])
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


Content = dict[bytes, bytes]


def write_lmdb(folder: Path, content: Content, removed: list[bytes]) -> Path:
    """In two transactions, so that both meta pages are in use and pages have been freed."""
    with lmdb.open(str(folder), map_size=1 << 26) as database:
        with database.begin(write=True) as writing:
            for key, value in content.items():
                writing.put(key, value)
        with database.begin(write=True) as writing:
            for key in removed:
                writing.delete(key)
    return folder / "data.mdb"


def found(file: Path) -> Content:
    whole = file.read_bytes()
    entries = lmdb_ranges(file, file, "do this")
    return {key: whole[offset : offset + size] for key, offset, size in entries}


@settings(max_examples=60)
@given(
    dictionaries(binary(min_size=1, max_size=40), integers(0, 20_000), max_size=60),
    lists(integers(0, 59), max_size=20),
)
def test_the_same_entries_as_lmdb(sizes: dict[bytes, int], gone: list[int]) -> None:
    content = {key: key[:1] * size for key, size in sizes.items()}
    removed = [key for number, key in enumerate(content) if number in gone]
    with TemporaryDirectory() as folder:
        read = found(write_lmdb(Path(folder), content, removed))
    kept = {key: value for key, value in content.items() if key not in removed}
    assert read == kept and list(read) == sorted(kept)


def test_trees_of_several_levels_and_every_truncation(tmp_path: Path) -> None:
    """Mapped into memory, most truncated files end the process."""
    content = {f"{i * 7919 % 50_000:040x}".encode(): bytes([i % 251]) * 30 for i in range(50_000)}
    (tmp_path / "small").mkdir()
    read = found(write_lmdb(tmp_path, content, []))
    assert read == content and list(read) == sorted(content)
    file = write_lmdb(tmp_path / "small", {b"%d" % i: bytes(3000) for i in range(40)}, [])
    whole = file.read_bytes()
    for size in range(0, len(whole) - 4096, 1111):
        file.write_bytes(whole[:size])
        with pytest.raises(OcmError, match=r"data\.mdb: expected a whole LMDB database"):
            lmdb_ranges(file, file, "do this")
