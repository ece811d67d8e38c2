"""Damaged inputs at every door: only `OcmError` leaves, soon, in few words; and the counts."""

from pathlib import Path

import pytest

from ocm_core.pipeline.stage import stages
from tests.chaos import campaign
from tests.chaos.campaign import HEADER, attack, table, tries
from tests.chaos.checkout import TINY, make_checkout
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


def test_the_campaign_is_large_and_has_every_stage(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        jobs = make_checkout(tmp_path, [*TINY])
    assert {job.task.stage for job in jobs} == stages().keys()
    assert sum(door.full for door in DOORS.values()) >= 10_000


def test_attacks_are_added_up_and_one_that_fails_is_counted(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(campaign, "FULL", True)
    monkeypatch.setattr(campaign, "COUNTS", tmp_path / ".chaos/counts.jsonl")
    for name, count in (("kills", 2), ("flips", 5)):
        with attack(name, "all of them") as tally:
            tally.tried = count
    with pytest.raises(AssertionError), attack("kills", "all of them") as tally:
        tally.tried += 3
        raise AssertionError("other bytes")
    flips, kills = "| flips | all of them | 5 | 0 |", "| kills | all of them | 5 | 1 |"
    counted = table(campaign.COUNTS.read_text().splitlines())
    assert counted == f"{HEADER}{flips}\n{kills}\n| all | | 10 | 1 |\n"
