"""Our walk over an LMDB file finds what LMDB itself finds, and survives what LMDB does not."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis.strategies import binary, dictionaries, integers, lists

from ocm_core.errors import OcmError
from ocm_core.io.lmdb_file import lmdb_ranges

Content = dict[bytes, bytes]


def write(folder: Path, content: Content, removed: list[bytes]) -> Path:
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
        read = found(write(Path(folder), content, removed))
    kept = {key: value for key, value in content.items() if key not in removed}
    assert read == kept and list(read) == sorted(kept)


def test_a_tree_of_several_levels(tmp_path: Path) -> None:
    content = {f"{i * 7919 % 50_000:040x}".encode(): bytes([i % 251]) * 30 for i in range(50_000)}
    read = found(write(tmp_path, content, []))
    assert read == content and list(read) == sorted(content)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """Mapped into memory, most of them end the process."""
    file = write(tmp_path, {b"%d" % i: bytes(3000) for i in range(40)}, [])
    whole = file.read_bytes()
    for size in range(0, len(whole) - 4096, 1111):
        file.write_bytes(whole[:size])
        with pytest.raises(OcmError, match=r"data\.mdb: expected a whole LMDB database"):
            lmdb_ranges(file, file, "do this")
