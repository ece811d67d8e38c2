"""Print the counts of the last whole campaign; `make chaos` ends so."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.chaos.campaign import COUNTS

HEADER = "| attack | what was tried | times | failures |\n| --- | --- | ---: | ---: |\n"


def table(lines: Iterable[str]) -> str:
    """A row per attack, and the sum; several lines of one attack are added up."""
    rows: dict[str, tuple[str, int, int]] = {}
    for line in map(json.loads, lines):
        _, tried, failed = rows.get(line["attack"], ("", 0, 0))
        counts = tried + line["tried"], failed + line["failed"]
        rows[line["attack"]] = (line["what"], *counts)
    body = [f"| {name} | {what} | {n} | {bad} |" for name, (what, n, bad) in sorted(rows.items())]
    tried, failed = (sum(row[place] for row in rows.values()) for place in (1, 2))
    return HEADER + "\n".join([*body, f"| all | | {tried} | {failed} |", ""])


def main() -> None:
    print(table(COUNTS.read_text().splitlines()), end="")


if __name__ == "__main__":
    main()
