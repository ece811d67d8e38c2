"""What is written is what is read, and anything wrong on the way is said."""

import errno
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ocm_core.errors import OcmError
from ocm_core.io.checksums import data_files
from ocm_core.store import writer
from ocm_core.store.reader import open_split
from ocm_core.store.writer import StoreLayout, share

from .data import ATTRS, digests, plan, ranges, reader, values, write_jobs

LAYOUTS = st.builds(
    lambda dtype, spread, chunk, chunks, **others: plan(
        dtype=dtype, spread=spread and dtype != "uint8", chunk=chunk, shard=chunk * chunks, **others
    ),
    items=st.integers(1, 60).map(range),
    shape=st.sampled_from([(), (3,), (2, 3)]),
    dtype=st.sampled_from(["uint8", "float16", "float32"]),
    **{"labelled": st.booleans(), "spread": st.booleans()},
    **{"chunk": st.integers(1, 7), "chunks": st.integers(1, 4)},
)


@settings(max_examples=20)
@given(whole=LAYOUTS, jobs=st.integers(1, 4))
def test_a_split_is_read_as_it_was_written_whatever_the_number_of_writers(
    tmp_path_factory: pytest.TempPathFactory, whole: StoreLayout, jobs: int
) -> None:
    count, data = len(whole.items), values(len(whole.items), whole.shape, whole.dtype)
    folders = write_jobs(tmp_path_factory.mktemp("split"), whole, data, jobs)
    stored = open_split(folders[::-1], "train")
    assert len(stored) == count and stored.shape == whole.shape
    for name, found in stored.raw(range(count)).items():
        np.testing.assert_array_equal(found, data[name])
        assert found.dtype == whole.dtype
    np.testing.assert_array_equal(stored.labels, data["label"] if whole.labelled else None)
    scaled = data["x"] / 8.0 - 1 if whole.levels else data["x"]  # of 17 grey levels
    np.testing.assert_allclose(stored.all(), scaled, atol=1e-7)
    assert stored.levels == whole.levels and stored.all().dtype == np.float32
    if jobs == 1:  # bytes are known exactly beforehand
        files = [file for file in data_files(folders[0]) if file.name != "zarr.json"]
        assert sum(file.stat().st_size for file in files) == whole.bytes_of(whole.shards)
    rows = np.random.default_rng(1).integers(0, count, 20)
    np.testing.assert_array_equal(stored.read(rows), stored.all()[rows])
    np.testing.assert_array_equal(stored.read(range(count // 2, count)), stored.all()[count // 2 :])
    assert [row for piece in stored.chunks for row in piece] == list(range(count))


def test_a_kept_posterior_is_read_by_xarray_and_drawn_from(tmp_path: Path) -> None:
    whole = plan(range(21), spread=True)
    data = values(21, whole.shape, "float32")
    folders = write_jobs(tmp_path, whole, data, 2)
    stored = open_split(folders, "train")
    drawn = stored.to_x0(stored.raw(range(21)), [np.random.default_rng(i) for i in range(21)])
    each = (np.random.default_rng(i) for i in range(21))
    noise = np.stack([n.standard_normal(whole.shape, dtype=np.float32) for n in each])
    np.testing.assert_allclose(drawn, data["x"] + data["std"] * noise, rtol=1e-6)
    np.testing.assert_array_equal(stored.all(), data["x"])
    opened = [xr.open_zarr(folder / "train.zarr", consolidated=False) for folder in folders]
    joined = xr.concat(opened, "item", combine_attrs="drop_conflicts").load()
    assert set(joined.coords) == {"index", "label"} and set(joined.data_vars) == {"x", "std"}
    assert joined["x"].dims == ("item", "axis0", "axis1")
    np.testing.assert_array_equal(joined["index"], np.arange(21))
    for name in ("x", "std", "label"):
        np.testing.assert_array_equal(joined[name], data[name])
    assert joined.attrs == {**ATTRS, "levels": None}
    assert opened[1].attrs["items"] == [8, 21]
    assert np.isnan(opened[0]["x"].encoding["fill_value"])


def test_a_chunk_of_zeros_is_written_when_resumed_as_when_not(tmp_path: Path) -> None:
    whole = plan(range(16), dtype="uint8", labelled=False)
    data = {"x": np.zeros((16, *whole.shape), np.uint8)}
    (folder,) = write_jobs(tmp_path, whole, data, 1)
    before = digests(folder)
    writer.shard_file(folder / "train.zarr", whole, "x", range(8, 16)).unlink()
    writer.write(folder / "train.zarr", whole, reader(whole, data), ATTRS)
    assert digests(folder) == before


def test_writers_may_share_a_store_when_each_takes_its_own_shards(tmp_path: Path) -> None:
    whole = plan(range(29))
    data = values(29, whole.shape, "float32")
    (folder,) = write_jobs(tmp_path, whole, data, 1)
    path = tmp_path / "shared.zarr"
    writer.begin(path, whole, ATTRS)
    missing = writer.missing(path, whole)
    assert missing == whole.shards
    with ThreadPoolExecutor(2) as pool:
        halves = (missing[::2], missing[1::2])
        list(pool.map(lambda h: writer.write_shards(path, whole, h, reader(whole, data)), halves))
    writer.verify(path, whole)
    assert digests(path) == digests(folder / "train.zarr")


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, StoreLayout]:
    whole = plan(range(20))
    (folder,) = write_jobs(tmp_path, whole, values(20, whole.shape, "float32"), 1)
    return folder / "train.zarr", whole


def test_a_missing_or_shortened_shard_is_found_when_read_and_mended_when_resumed(
    written: tuple[Path, StoreLayout],
) -> None:
    path, whole = written
    before = digests(path)
    writer.shard_file(path, whole, "label", range(16, 20)).unlink()
    with pytest.raises(OcmError, match=r"label/c/2: no such shard \(there are 2 of 3\)"):
        open_split([path.parent], "train")
    with pytest.raises(OcmError, match="label/c/2: no such shard"):
        writer.verify(path, whole)
    read = reader(whole, values(20, whole.shape, "float32"))
    writer.write(path, whole, read, ATTRS)
    assert digests(path) == before
    shard = writer.shard_file(path, whole, "x", range(16, 20))
    shard.write_bytes(shard.read_bytes()[-40:])
    with pytest.raises(OcmError, match="x/c/2/0/0: 40 bytes instead of 132"):
        open_split([path.parent], "train")
    writer.write(path, whole, read, ATTRS)
    assert digests(path) == before


@pytest.mark.parametrize(
    ("other", "attrs"),
    [
        (plan(range(20)), {**ATTRS, "scaling_factor": 0.6}),
        (plan(range(19)), ATTRS),
        (plan(range(20), chunk=2), ATTRS),
        (plan(range(20), dtype="float16"), ATTRS),
        (plan(range(20), labelled=False), ATTRS),
    ],
)
def test_a_store_of_something_else_is_not_resumed(
    written: tuple[Path, StoreLayout], other: StoreLayout, attrs: dict[str, object]
) -> None:
    with pytest.raises(OcmError, match="holds something else than planned; delete it"):
        writer.write(written[0], other, reader(other, values(20, (2, 3), other.dtype)), attrs)


FIVE = np.arange(8)[:, None, None] == 5


@pytest.mark.parametrize(
    ("dtype", "change", "message"),
    [
        ("float32", lambda d: d | {"x": d["x"][:, :1]}, "x of items range.0, 8. has shape"),
        ("float32", lambda d: d | {"x": np.where(FIVE, np.nan, d["x"])}, "item 5 is not finite"),
        ("float32", lambda d: d | {"label": d["label"][:3]}, "label of items"),
        ("float32", lambda d: d | {"label": d["label"] + 0.5}, "float64, planned was int64"),
        ("uint8", lambda d: d | {"x": np.full((8, 2, 3), 17, np.uint8)}, "not below levels = 17"),
        ("float16", lambda d: d | {"x": np.full((8, 2, 3), 1e6)}, "not finite as float16"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_bad_values_are_named(tmp_path: Path, dtype: str, change: object, message: str) -> None:
    whole = plan(range(8), dtype=dtype)  # type: ignore[arg-type]
    given = reader(whole, values(8, whole.shape, whole.dtype))
    with pytest.raises(OcmError, match=message):
        writer.write(tmp_path / "a.zarr", whole, lambda rows: change(given(rows)), ATTRS)  # type: ignore[operator]
    assert not list(tmp_path.rglob("c/*"))


def test_a_quota_that_the_disk_does_not_show_ends_in_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    path, whole = tmp_path / "train.zarr", plan(range(8))
    data = values(8, whole.shape, "float32")
    writer.begin(path, whole, ATTRS)
    monkeypatch.setattr("os.fsync", full)
    wanted = rf"{whole.bytes_of(whole.shards)} bytes \(0.0 GB\) were to be written"
    with pytest.raises(OcmError, match=rf"{path}: Disk quota exceeded; {wanted}.*free some space"):
        writer.write_shards(path, whole, whole.shards, reader(whole, data))


def test_stores_that_do_not_make_a_whole_split_are_refused(tmp_path: Path) -> None:
    whole = plan(range(30))
    folders = write_jobs(tmp_path, whole, values(30, whole.shape, "float32"), 3)
    for other, found in ((2, 16), (0, 0)):
        with pytest.raises(OcmError, match=f"expected it to begin with item 8, found {found}"):
            open_split([folders[0], folders[other]], "train")
    with pytest.raises(OcmError, match=r"validation.zarr: no such store"):
        open_split(folders, "validation")
    metadata = folders[1] / "train.zarr" / "zarr.json"
    content = json.loads(metadata.read_text())
    content["attributes"]["scaling_factor"] = 0.7
    metadata.write_text(json.dumps(content))
    with pytest.raises(OcmError, match=r"2of3.*written with other settings"):
        open_split(folders, "train")


def test_rows_that_do_not_exist_are_refused(written: tuple[Path, StoreLayout]) -> None:
    stored = open_split([written[0].parent], "train")
    for rows in (range(15, 21), range(-1, 3), range(0), np.array([3, 20]), np.array([-1])):
        with pytest.raises(OcmError, match="expected some of 0 to 19"):
            stored.read(rows)


@given(count=st.integers(0, 300), jobs=st.integers(1, 12), shard=st.integers(1, 40))
def test_jobs_get_contiguous_ranges_that_begin_at_shards(count: int, jobs: int, shard: int) -> None:
    cut = ranges(count, jobs, shard)
    assert share("all", count, shard) == range(count)
    assert [item for items in cut for item in items] == list(range(count))
    assert all(items.start % shard == 0 for items in cut)
    loads = [-(-len(items) // shard) for items in cut]
    assert max(loads) - min(loads) <= 1


def test_shards_of_broken_chunks_are_refused() -> None:
    with pytest.raises(OcmError, match="shard of whole chunks"):
        plan(range(9), chunk=3, shard=8)


def test_a_disk_that_is_too_small_is_named_and_the_writer_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "train.zarr", plan(range(20))
    needed, read = whole.bytes_of(whole.shards), reader(whole, values(20, whole.shape, "float32"))
    free = iter([needed - 1, needed, 0])
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=next(free)))
    said = rf"zarr: {needed:,} bytes .0.0 GB. are still to .*the disk of {tmp_path.resolve()}"
    with pytest.raises(OcmError, match=said):
        writer.write(path, whole, read, ATTRS)
    assert not list(path.rglob("c/*"))
    with pytest.raises(OcmError, match="finished work is kept"):  # full after the first shard
        writer.write(path, whole, read, ATTRS)
    monkeypatch.undo()
    done: list[range] = []
    writer.write(path, whole, lambda rows: done.append(rows) or read(rows), ATTRS)  # type: ignore[func-returns-value]
    assert done == [range(8, 16), range(16, 20)]
