"""Arithmetic of shards, and the message when a disk is too small."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.errors import OcmError
from ocm_core.io.atomic import check_space
from ocm_core.io.checksums import data_files
from ocm_core.store.layout import ranges
from ocm_core.store.writer import write

from .data import ATTRS, plan, reader, values, write_jobs


@given(count=st.integers(0, 300), jobs=st.integers(1, 12), shard=st.integers(1, 40))
def test_jobs_get_contiguous_ranges_that_begin_at_shards(count: int, jobs: int, shard: int) -> None:
    cut = ranges(count, jobs, shard)
    assert len(cut) == jobs
    assert [item for items in cut for item in items] == list(range(count))
    assert all(items.start % shard == 0 for items in cut)
    loads = [-(-len(items) // shard) for items in cut]
    assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9, 12, 13, 29])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_bytes_are_known_exactly_beforehand(count: int, dtype: str, tmp_path: Path) -> None:
    whole = plan(range(count), dtype=dtype, spread=dtype != "uint8")  # type: ignore[arg-type]
    data = values(count, whole.shape, whole.dtype)
    (folder,) = write_jobs(tmp_path, whole, data, 1)
    files = [file for file in data_files(folder) if file.name != "zarr.json"]
    assert sum(file.stat().st_size for file in files) == whole.bytes_of(whole.shards)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk": 3, "shard": 8}, "shard of whole chunks"),
        ({"items": range(4, 9)}, "begin at a multiple of shard = 8"),
        ({"dtype": "float32", "levels": 17}, "grey levels for uint8"),
        ({"dtype": "uint8", "levels": None}, "grey levels for uint8"),
        ({"dtype": "uint8", "levels": 17, "spread": True}, "no spread of pixels"),
    ],
)
def test_impossible_plans_are_refused(changes: dict[str, object], message: str) -> None:
    possible = plan(range(9))
    with pytest.raises(OcmError, match=message):
        type(possible)(**{**vars(possible), **changes})


def test_a_disk_that_is_too_small_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = plan(range(20))
    needed = whole.bytes_of(whole.shards)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed - 1))
    path = tmp_path / "train.zarr"
    with pytest.raises(OcmError, match=rf"train.zarr: {needed:,} bytes .0.0 GB. are still .* has "):
        write(path, whole, reader(whole, values(20, whole.shape, "float32")), ATTRS)
    assert not list(path.rglob("c/*"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed))
    write(path, whole, reader(whole, values(20, whole.shape, "float32")), ATTRS)


def test_a_disk_that_fills_up_stops_the_writer_between_shards_and_it_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = plan(range(20))
    data = values(20, whole.shape, "float32")
    free = iter([10**9, 0])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=next(free)))
    path = tmp_path / "train.zarr"
    with pytest.raises(OcmError, match="finished work is kept"):
        write(path, whole, reader(whole, data), ATTRS)
    done: list[range] = []
    monkeypatch.undo()
    write(path, whole, lambda rows: done.append(rows) or reader(whole, data)(rows), ATTRS)  # type: ignore[func-returns-value]
    assert done == [range(8, 16), range(16, 20)]


def test_the_message_says_how_much_is_needed_and_how_much_there_is(tmp_path: Path) -> None:
    with pytest.raises(OcmError, match=r"1000000.0 GB. are still to be written") as raised:
        check_space(tmp_path / "not" / "there" / "yet", 10**15)
    assert str(tmp_path.resolve()) in str(raised.value)
