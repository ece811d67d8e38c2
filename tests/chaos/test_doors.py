"""Damaged inputs at every door: nothing but `OcmError` leaves, soon, and in few words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import attack, tries
from tests.chaos.doors import DOORS
from tests.chaos.fuzzing import ACCEPTED, REFUSED, fuzz, in_one_process

QUICK = ("composed files", "results", "active experiments", "manifests", "stores", "heads")
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DOORS]


@pytest.mark.parametrize("name", CASES)
def test_damaged_inputs(name: str) -> None:
    door = DOORS[name]
    with attack(name, door.what) as tally:
        found = fuzz(name, tries(short=door.short, full=door.full))
        failures = [
            f"{what} (`python -m tests.chaos.fuzzing '{name}' {number}` shows it)"
            for number, what in enumerate(found)
            if what not in (ACCEPTED, REFUSED)
        ]
        tally.tried, tally.failed = len(found), len(failures)
        assert not failures, "\n".join(failures[:20])
        assert REFUSED in found, "not one damaged input was refused: the damage misses the door"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("servers", 745),  # a chunk of more bytes than an index can count
        ("stores", 1118),  # shards of no items
    ],
)
def test_an_input_that_once_failed(name: str, number: int, tmp_path: Path) -> None:
    assert list(in_one_process(name, range(number, number + 1), tmp_path)) == [REFUSED]
