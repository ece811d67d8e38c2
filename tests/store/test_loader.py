"""Shuffled batches: every item once an epoch, the same from memory, from disk, after a resume."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ocm_core.rng.batches import BatchRng
from ocm_core.store.reader import ShuffledOrder, StoredItems, StoredSplit, open_split

from .data import plan, values, write_jobs

COUNT, CHUNK, BUFFER, BATCH = 67, 4, 3, 10
EVERYTHING = 10**9


def split(folder: Path, jobs: int = 1, spread: bool = False) -> StoredSplit:
    whole = plan(range(COUNT), spread=spread, chunk=CHUNK, shard=8)
    data = values(COUNT, whole.shape, "float32")
    data["label"] = np.arange(COUNT)  # tells which item it is
    return open_split(write_jobs(folder, whole, data, jobs), "train")


def chunks_of(size: int, chunk: int) -> list[range]:
    return [range(start, min(start + chunk, size)) for start in range(0, size, chunk)]


def rows(order: ShuffledOrder, seed: int, first: int, count: int) -> list[int]:
    pieces = list(order.pieces(seed, first, count))
    for group, part in pieces:
        assert {*part} <= {row for chunk in group.chunks for row in chunk}
        assert len(group.chunks) <= order.buffer
    return [int(row) for _, part in pieces for row in part]


chunked = st.builds(chunks_of, st.integers(1, 80), st.integers(1, 9))
orders = st.builds(ShuffledOrder, chunked, st.integers(1, 12))


@given(order=orders, seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_every_epoch_has_every_item_once(order: ShuffledOrder, seed: int, epoch: int) -> None:
    found = rows(order, seed, epoch * order.size, order.size)
    assert sorted(found) == list(range(order.size))


@given(order=orders, cut=st.integers(0, 200), count=st.integers(1, 200))
def test_the_order_is_the_same_from_anywhere(order: ShuffledOrder, cut: int, count: int) -> None:
    fresh = ShuffledOrder(order.chunks, order.buffer)
    assert rows(fresh, 1, cut, count) == rows(order, 1, 0, cut + count)[cut:]


@given(chunks=chunked, iteration=st.integers(0, 12))
def test_one_group_of_all_chunks_is_the_plain_shuffle(chunks: list[range], iteration: int) -> None:
    order = ShuffledOrder(chunks, buffer=80)
    expected = BatchRng(7, iteration, BATCH).items(order.size)
    assert rows(order, 7, iteration * BATCH, BATCH) == expected.tolist()


def test_chunks_epochs_and_seeds_are_shuffled() -> None:
    order = ShuffledOrder(chunks_of(400, 4), buffer=5)
    epochs = [rows(order, seed, 400 * epoch, 400) for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    first_chunks = {row // 4 for row in epochs[0][:20]}
    assert len(first_chunks) == 5 and first_chunks != set(range(5))


@pytest.mark.parametrize("jobs", [1, 3])
def test_streaming_gives_the_batches_of_memory_whatever_the_stores_and_beginning(
    tmp_path: Path, jobs: int
) -> None:
    memory = StoredItems(split(tmp_path / "a"), buffer=BUFFER, memory_bytes=EVERYTHING)
    stored = split(tmp_path / "b", jobs)
    everything = stored.all()
    for start in (0, 2, 9, 13):  # some in the middle of an epoch
        disk = StoredItems(stored, buffer=BUFFER, memory_bytes=stored.bytes - 1)
        assert memory._held and not disk._held
        for iteration in range(start, 20):
            rng = BatchRng(3, iteration, BATCH)
            (x, labels), (y, others) = memory.batch(rng), disk.batch(rng)
            assert torch.equal(x, y) and labels is not None and others is not None
            assert torch.equal(labels, others)
            np.testing.assert_array_equal(x, everything[labels.numpy()])


def test_streaming_keeps_two_groups_and_reads_each_chunk_once_an_epoch(tmp_path: Path) -> None:
    stored = split(tmp_path)
    asked: list[range] = []
    raw = stored.raw
    object.__setattr__(stored, "raw", lambda rows: asked.append(rows) or raw(rows))
    items = StoredItems(stored, buffer=BUFFER, memory_bytes=0)
    for iteration in range(COUNT // BATCH):
        items.batch(BatchRng(0, iteration, BATCH))
        assert len(items._read) <= 3 * BUFFER  # a batch may lie across two groups
    assert sorted(asked[: len(stored.chunks)], key=lambda c: c.start) == stored.chunks
    assert len(asked) <= len(stored.chunks) + BUFFER


@pytest.mark.parametrize("memory_bytes", [0, EVERYTHING])
def test_a_kept_posterior_is_drawn_afresh_each_iteration(tmp_path: Path, memory_bytes: int) -> None:
    stored = split(tmp_path, spread=True)
    items = StoredItems(stored, buffer=BUFFER, memory_bytes=memory_bytes)
    raw = stored.raw(range(COUNT))
    noises = []
    for iteration in range(COUNT):  # each item occurs ten times
        x, labels = items.batch(BatchRng(0, iteration, BATCH))
        assert labels is not None
        mean, std = raw["x"][labels], raw["std"][labels]
        noises.append((x.numpy() - mean) / std)
    assert torch.equal(items.batch(BatchRng(0, 5, BATCH))[0], items.batch(BatchRng(0, 5, BATCH))[0])
    noise = np.concatenate(noises)
    assert len(np.unique(noise.round(4))) > 0.9 * noise.size
    assert abs(noise.mean()) < 5 / np.sqrt(noise.size) and abs(noise.std() - 1) < 0.05
    eps = BatchRng(0, 5, BATCH).normals(stored.shape).numpy()
    assert not np.allclose(noises[5], eps, atol=1e-2)  # not the noise of the diffusion


def test_without_labels_a_batch_larger_than_the_set(tmp_path: Path) -> None:
    whole = plan(range(9), labelled=False)
    data = values(9, whole.shape, "float32")
    stored = open_split(write_jobs(tmp_path, whole, data, 1), "train")
    x, labels = StoredItems(stored, buffer=2, memory_bytes=0).batch(BatchRng(0, 1, 18))
    assert labels is None
    np.testing.assert_array_equal(np.sort(x, axis=0), np.sort(np.repeat(data["x"], 2, 0), axis=0))
