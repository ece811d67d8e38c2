"""Write the counts of the last whole campaign into docs/reliability.md; `make chaos` ends so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tests.chaos.campaign import COUNTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
HEADER = "| attack | what was tried | times | failures |\n| --- | --- | ---: | ---: |\n"
TABLE = re.compile(re.escape(HEADER) + r"(?:\|.*\|\n)*")


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
    text, found = DOCUMENT.read_text(), table(COUNTS.read_text().splitlines())
    written, places = TABLE.subn(lambda _: found, text)
    assert places == 1, f"{DOCUMENT}: expected one table with the header {HEADER!r}"
    DOCUMENT.write_text(written)
    print(found, end="")


if __name__ == "__main__":
    main()
