"""How long the campaign is, and its counts.

`CAMPAIGN=full` (`make chaos`) tries everything; without it a test tries its short number. The full
form leaves a line per kind of attack in `.chaos/counts.jsonl`: docs/reliability.md is made of them.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

FULL = os.environ.get("CAMPAIGN") == "full"
COUNTS = Path(__file__).parents[2] / ".chaos" / "counts.jsonl"

HEADER = "| attack | what was tried | times | failures |\n| --- | --- | ---: | ---: |\n"


def tries(short: int, full: int) -> int:
    """How often something is tried."""
    return full if FULL else short


@contextmanager
def attack(name: str, what: str) -> Iterator[SimpleNamespace]:
    """Keep the counts of one kind of attack; `what` says what was tried, and what is a failure.

    They are kept however the block ends: one that raises has failed at least once.
    """
    tally = SimpleNamespace(tried=0, failed=0)
    try:
        yield tally
    except BaseException:
        tally.failed = max(tally.failed, 1)
        raise
    finally:
        if FULL:
            COUNTS.parent.mkdir(exist_ok=True)
            with COUNTS.open("a") as stream:
                stream.write(json.dumps({"attack": name, **vars(tally), "what": what}) + "\n")


def table(lines: Iterable[str]) -> str:
    """A row per attack, and the sum; several lines of one attack are added up."""
    rows: dict[str, tuple[str, int, int]] = {}
    for line in map(json.loads, lines):
        _, tried, failed = rows.get(line["attack"], ("", 0, 0))
        rows[line["attack"]] = (line["what"], tried + line["tried"], failed + line["failed"])
    body = [f"| {name} | {what} | {n} | {bad} |" for name, (what, n, bad) in sorted(rows.items())]
    tried, failed = (sum(row[place] for row in rows.values()) for place in (1, 2))
    return HEADER + "\n".join([*body, f"| all | | {tried} | {failed} |", ""])
