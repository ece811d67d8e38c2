"""The counts of a campaign, and that it attacks every stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocm_core.pipeline.stage import stages
from tests.chaos import campaign
from tests.chaos.campaign import HEADER, attack, table
from tests.chaos.checkout import TINY, make_checkout
from tests.chaos.doors import DOORS


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
