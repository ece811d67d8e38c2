"""docs/reliability.md has the counts of a whole campaign over every door that there is."""

from __future__ import annotations

import json

from tests.chaos.__main__ import DOCUMENT, HEADER, TABLE, table
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


def test_the_document_counts_every_door() -> None:
    (found,) = TABLE.findall(DOCUMENT.read_text())
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.splitlines()[2:]]
    counts = {name: (int(tried), int(failed)) for name, _, tried, failed in rows}
    assert {name: counts.get(name) for name in DOORS} == {
        name: (door.full, 0) for name, door in DOORS.items()
    }
    assert sum(door.full for door in DOORS.values()) >= 10_000
