"""What every data set promises, whatever it is read from."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocm_core.datasets.base import DataSet

from .conftest import without_published_digests
from .kinds import KINDS, Kind


@pytest.fixture(scope="module", params=KINDS.values(), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(scope="module")
def archives(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(kind.block.kind) / "datasets"


@pytest.fixture(scope="module")
def opened(kind: Kind, archives: Path) -> DataSet:
    kind.write(archives / kind.block.kind)
    return open_(kind, archives)


def open_(kind: Kind, archives: Path) -> DataSet:
    with without_published_digests():
        return kind.block.open(archives)


def test_values_and_labels_are_what_the_parameters_say(kind: Kind, opened: DataSet) -> None:
    block = kind.block
    assert opened.levels == block.levels
    assert set(opened.splits) == {"train", "test"}
    assert tuple(len(opened.splits[split]) for split in ("train", "test")) == kind.sizes
    if not block.needed_archives():  # whose tiny copies have other sizes
        assert tuple(block.count_items().values()) == kind.sizes
    for split in opened.splits.values():
        values = split.read(range(len(split)))
        assert values.shape == (len(split), *block.shape)
        assert values.dtype == (np.float32 if block.levels is None else np.uint8)
        assert block.levels is None or values.max() < block.levels
        assert (split.labels is None) == (block.classes == 0)
        if split.labels is not None:
            assert split.labels.shape == (len(split),) and split.labels.dtype == np.int64
            assert split.labels.min() >= 0 and split.labels.max() < block.classes
        with pytest.raises(IndexError):
            split.read(range(len(split) - 1, len(split) + 1))
    items = [{x.tobytes() for x in s.read(range(len(s)))} for s in opened.splits.values()]
    assert not items[0] & items[1]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_ranges_are_parts_of_the_whole(opened: DataSet, data: st.DataObject) -> None:
    split = opened.splits[data.draw(st.sampled_from(["train", "test"]))]
    rows = [min(len(split), row) for row in data.draw(st.tuples(*2 * [st.integers(0, 40)]))]
    start, stop = sorted(rows)
    whole = split.read(range(min(len(split), 40)))
    np.testing.assert_array_equal(split.read(range(start, stop)), whole[start:stop])


def test_a_second_look_finds_the_same(kind: Kind, opened: DataSet, archives: Path) -> None:
    """Now from what the first has unpacked and remembered."""
    again = open_(kind, archives)
    assert again.provenance == opened.provenance
    assert json.loads(json.dumps(again.provenance)) == again.provenance
    for name, split in opened.splits.items():
        np.testing.assert_array_equal(again.splits[name].labels, split.labels)
        rows = range(min(20, len(split)))
        np.testing.assert_array_equal(again.splits[name].read(rows), split.read(rows))
