"""How long the campaign is, and its counts.

`CAMPAIGN=full` (`make chaos`) tries everything; without it a test tries its short number. The full
form leaves a line per kind of attack in `.chaos/counts.jsonl`: docs/reliability.md is made of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FULL = os.environ.get("CAMPAIGN") == "full"
COUNTS = Path(__file__).parents[2] / ".chaos" / "counts.jsonl"


def tries(short: int, full: int) -> int:
    """How often something is tried."""
    return full if FULL else short


@dataclass
class Tally:
    """What the block of an attack counts."""

    tried: int = 0
    failed: int = 0


@contextmanager
def attack(name: str, what: str) -> Iterator[Tally]:
    """Keep the counts of one kind of attack; `what` says what was tried, and what is a failure.

    They are kept however the block ends: one that raises has failed at least once.
    """
    tally = Tally()
    try:
        yield tally
    except BaseException:
        tally.failed = max(tally.failed, 1)
        raise
    finally:
        if FULL:
            _keep({"attack": name, **vars(tally), "what": what})


def _keep(line: dict[str, str | int]) -> None:
    COUNTS.parent.mkdir(exist_ok=True)
    with COUNTS.open("a") as stream:
        stream.write(json.dumps(line) + "\n")
