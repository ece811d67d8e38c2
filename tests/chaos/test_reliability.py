"""The counts of a campaign, and that it attacks every stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ocm_core.pipeline.stage import stages
from tests.chaos import campaign
from tests.chaos.__main__ import HEADER, table
from tests.chaos.campaign import attack
from tests.chaos.checkout import TINY, make_checkout
from tests.chaos.doors import DOORS


def test_lines_of_one_attack_are_added_up() -> None:
    lines = [
        {"attack": "b", "tried": 3, "failed": 1, "what": "beta"},
        {"attack": "a", "tried": 5, "failed": 0, "what": "alpha"},
        {"attack": "b", "tried": 4, "failed": 0, "what": "beta"},
    ]
    assert table(map(json.dumps, lines)) == (
        f"{HEADER}| a | alpha | 5 | 0 |\n| b | beta | 7 | 1 |\n| all | | 12 | 1 |\n"
    )


def test_the_campaign_has_every_stage(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        jobs = make_checkout(tmp_path, [*TINY])
    assert {job.task.stage for job in jobs} == stages().keys()


def test_an_attack_that_fails_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "FULL", True)
    monkeypatch.setattr(campaign, "COUNTS", tmp_path / ".chaos/counts.jsonl")
    with attack("kills", "all of them") as tally:
        tally.tried = 2
    with pytest.raises(AssertionError), attack("kills", "all of them") as tally:
        tally.tried += 3
        raise AssertionError("other bytes")
    lines = campaign.COUNTS.read_text().splitlines()
    assert "| kills | all of them | 5 | 1 |" in table(lines)


def test_a_whole_campaign_is_large() -> None:
    assert sum(door.full for door in DOORS.values()) >= 10_000
