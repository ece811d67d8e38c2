"""Damaged inputs at every door: nothing but `OcmError` leaves, soon, and in few words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import attack, tries
from tests.chaos.doors import DOORS
from tests.chaos.fuzzing import REFUSED, fuzz, in_one_process

QUICK = ("composed files", "results", "active experiments", "manifests", "stores", "heads")
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DOORS]


@pytest.mark.parametrize("name", CASES)
def test_damaged_inputs(name: str) -> None:
    door = DOORS[name]
    with attack(name, door.what) as tally:
        outcome = fuzz(name, tries(short=door.short, full=door.full))
        tally.tried, tally.failed = outcome.tried, len(outcome.failures)
        assert not outcome.failures, "\n".join(map(str, outcome.failures[:20]))
        assert outcome.refused, "not one damaged input was refused: the damage misses the door"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("servers", 745),  # a chunk of more bytes than an index can count
        ("stores", 1118),  # shards of no items
    ],
)
def test_an_input_that_once_failed(name: str, number: int, tmp_path: Path) -> None:
    assert list(in_one_process(name, range(number, number + 1), tmp_path)) == [REFUSED]
