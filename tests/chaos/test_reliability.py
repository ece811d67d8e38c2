"""docs/reliability.md has the counts of a whole campaign over every door that there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ocm_core.pipeline.table import BY_NAME
from tests.chaos import campaign
from tests.chaos.__main__ import DOCUMENT, HEADER, TABLE, table
from tests.chaos.campaign import FULL, attack
from tests.chaos.checkout import TINY, make_checkout
from tests.chaos.doors import DOORS

LEAST = {  # of a whole campaign
    "kills": 100,
    "races": 50,
    "damage in artifacts": 100,
    "damage in interrupted work": 33,
    "orders of events": 500,
}


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
    assert {job.task.stage for job in jobs} == BY_NAME.keys()


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


def documented() -> dict[str, tuple[int, int]]:
    """By attack, how often it was tried, and how often it succeeded."""
    (found,) = TABLE.findall(DOCUMENT.read_text())
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.splitlines()[2:]]
    return {name: (int(tried), int(failed)) for name, _, tried, failed in rows}


after_a_campaign = pytest.mark.skipif(
    FULL, reason="the document is written when all has been tried"
)


@after_a_campaign
def test_the_document_counts_every_door() -> None:
    counts = documented()
    assert {name: counts.get(name) for name in DOORS} == {
        name: (door.full, 0) for name, door in DOORS.items()
    }
    assert sum(door.full for door in DOORS.values()) >= 10_000


@after_a_campaign
@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_the_document_counts_every_other_attack(name: str, least: int) -> None:
    tried, failed = documented().get(name, (0, 0))
    assert tried >= least and not failed, "run `make chaos`"


@after_a_campaign
def test_the_document_has_no_other_row() -> None:
    assert documented().keys() == {*DOORS, *LEAST, "all"}
