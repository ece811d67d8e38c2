"""Interrupted downloads go on where they stopped, and never mix two versions of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.io.download import CHUNK, download

from .server import Served, serve

BODY = bytes(range(251)) * (3 * CHUNK // 251)
HALF = len(BODY) // 2


def interrupted(server: Served, path: Path) -> None:
    server.break_after = HALF
    with pytest.raises(OcmError, match=f"ended after {HALF} of {len(BODY)} bytes; run it again"):
        download(server.url, path, "do this")
    server.break_after = None
    assert not path.exists()


def test_a_download_resumes_with_the_missing_bytes_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.pt"
    with serve(Served(BODY)) as server:
        interrupted(server, path)
        digest = download(server.url, path, "do this")
        assert server.sent == [HALF, len(BODY) - HALF]
    assert path.read_bytes() == BODY
    assert digest == hashlib.sha256(BODY).hexdigest()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("change", [{"version": '"second"'}, {"ranges": False}])
def test_a_changed_file_or_a_server_without_ranges_starts_anew(
    change: dict[str, object], tmp_path: Path
) -> None:
    path, other = tmp_path / "x.pt", BODY[::-1]
    with serve(Served(BODY)) as server:
        interrupted(server, path)
        server.body = other
        for name, value in change.items():
            setattr(server, name, value)
        assert download(server.url, path, "do this") == hashlib.sha256(other).hexdigest()
        assert server.sent == [HALF, len(other)]
    assert path.read_bytes() == other


def test_a_range_that_was_not_asked_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with serve(Served(BODY, misplaced=1)) as server:
        interrupted(server, path)
        with pytest.raises(OcmError, match=rf"bytes from {HALF} on, got bytes {HALF + 1}-"):
            download(server.url, path, "do this")
    assert not path.exists()


def test_a_part_that_is_too_long_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.with_name("x.pt.part").write_bytes(BODY + b"more")
    with serve(Served(BODY)) as server:
        download(server.url, path, "do this")
        assert server.sent == [0, len(BODY)]
    assert path.read_bytes() == BODY


def test_progress_counts_all_bytes(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    with serve(Served(BODY)) as server:
        interrupted(server, tmp_path / "x.pt")
        download(server.url, tmp_path / "x.pt", "", lambda *step: seen.append(step))
    assert seen[0] == (HALF, len(BODY)) and seen[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 2


def test_a_local_file_is_copied_whatever_part_lies_there(tmp_path: Path) -> None:
    source = tmp_path / "source.pt"
    source.write_bytes(BODY)
    (tmp_path / "x.pt.part").write_bytes(b"of something else")
    digest = download(source.as_uri(), tmp_path / "x.pt", "")
    assert (tmp_path / "x.pt").read_bytes() == BODY
    assert digest == hashlib.sha256(BODY).hexdigest()
    assert not (tmp_path / "x.pt.part").exists()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://user:hunter2@host/x.pt",
        "http://user:hunter2@127.0.0.1:1/x.pt",
        "http://user:hunter2@127.0.0.1:port/x.pt",
        "http://user:hunter2@[::1/x.pt",
        "http://127.0.0.1:1/x y.pt?access_token=hunter2&id=3",
    ],
)
def test_no_message_shows_a_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(OcmError) as refusal:
        download(url, tmp_path / "x.pt", "do this")
    assert "hunter2" not in str(refusal.value)


def test_user_and_password_are_sent_as_a_header(tmp_path: Path) -> None:
    with serve(Served(BODY)) as server:
        download(server.url.replace("//", "//user:p%40ss@"), tmp_path / "x.pt", "do this")
    assert server.asked[0]["Authorization"] == "Basic dXNlcjpwQHNz"  # user:p@ss


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "9" * 400, "\xff"])
def test_a_length_that_is_no_number(length: str, tmp_path: Path) -> None:
    with serve(Served(BODY, length=length)) as server, pytest.raises(OcmError, match="a length of"):
        download(server.url, tmp_path / "x.pt", "do this")
