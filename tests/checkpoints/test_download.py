"""Interrupted downloads go on where they stopped, and never mix two versions of a file."""

from pathlib import Path

import pytest

from ocm_core.errors import OcmError
from ocm_core.io.fetch import download

from .server import Served, serve

BODY = bytes(range(251)) * 5000
HALF = len(BODY) // 2


def interrupted(server: Served, path: Path) -> None:
    server.break_after = HALF
    said = r"could not be had from http://127\.0\.0\.1:\d+/.*run it again"
    with pytest.raises(OcmError, match=said):
        download(server.url, path, "do this")
    server.break_after = None
    assert not path.exists()


def test_a_download_resumes_with_the_missing_bytes_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.pt"
    with serve(Served(BODY)) as server:
        interrupted(server, path)
        kept = path.with_name("x.pt.part").stat().st_size
        download(server.url, path, "do this")
        assert server.sent == [HALF, len(BODY) - kept] and HALF / 2 < kept <= HALF
    assert path.read_bytes() == BODY
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
        download(server.url, path, "do this")
        assert server.sent == [HALF, len(other)]
    assert path.read_bytes() == other


@pytest.mark.parametrize(
    "sent",
    ["bytes {after}-{last}/*", "bytes {start}-{last}/9999999", "bytes {start}-", "", "bytes 1-2/9"],
)
def test_a_range_that_is_not_the_rest_is_refused(sent: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with serve(Served(BODY, content_range=sent)) as server:
        interrupted(server, path)
        with pytest.raises(OcmError, match=r"asked for the bytes from \d+ on, got"):
            download(server.url, path, "do this")
    assert not path.exists()


def test_a_part_where_the_whole_was_asked_for_is_refused(tmp_path: Path) -> None:
    with serve(Served(BODY, status=206)) as server, pytest.raises(OcmError, match="from 0 on"):
        download(server.url, tmp_path / "x.pt", "do this")


@pytest.mark.parametrize(
    ("part", "version", "sent"),
    [(BODY + b"more", '"first"', [0, len(BODY)]), (BODY[:HALF], None, [len(BODY)])],
    ids=["too long", "of an unnamed version"],
)
def test_a_part_that_does_not_fit_starts_anew(
    part: bytes, version: str | None, sent: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "x.pt"
    path.with_name("x.pt.part").write_bytes(part)
    if version:
        path.with_name("x.pt.part.version").write_text(version)
    with serve(Served(BODY)) as server:
        download(server.url, path, "do this")
        assert server.sent == sent
    assert path.read_bytes() == BODY


def test_a_local_file_is_copied_whatever_part_lies_there(tmp_path: Path) -> None:
    source = tmp_path / "source.pt"
    source.write_bytes(BODY)
    (tmp_path / "x.pt.part").write_bytes(b"of something else")
    download(source.as_uri(), tmp_path / "x.pt", "")
    assert (tmp_path / "x.pt").read_bytes() == BODY
    assert not (tmp_path / "x.pt.part").exists()


def test_no_message_shows_a_password(tmp_path: Path) -> None:
    places = (
        "ftp://{}@host",
        *(f"http://{{}}@{host}" for host in ("127.0.0.1:1", "a:port", "[::1")),
    )
    named = [f"{place}/x.pt".format("user:hunter2") for place in places]
    for url in (*named, "http://127.0.0.1:1/x y.pt?access_token=hunter2&id=3"):
        with pytest.raises(OcmError) as refusal:
            download(url, tmp_path / "x.pt", "do this")
        assert "hunter2" not in str(refusal.value)


def test_user_and_password_are_sent_as_a_header(tmp_path: Path) -> None:
    with serve(Served(BODY)) as server:
        download(server.url.replace("//", "//user:p%40ss@"), tmp_path / "x.pt", "do this")
    assert server.asked[0]["Authorization"] == "Basic dXNlcjpwQHNz"  # user:p@ss


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "9" * 400, "\xff"])
def test_a_length_that_is_no_number(length: str, tmp_path: Path) -> None:
    refused = pytest.raises(OcmError, match="could not be had")
    with serve(Served(BODY, length=length)) as server, refused:
        download(server.url, tmp_path / "x.pt", "do this")
