"""How long the campaign is, and its counts.

`CAMPAIGN=full` (`make chaos`) tries everything; without it a test tries its short number. The full
form leaves a line per kind of attack in `.chaos/counts.jsonl`: docs/reliability.md is made of them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FULL = os.environ.get("CAMPAIGN") == "full"
COUNTS = Path(__file__).parents[2] / ".chaos" / "counts.jsonl"


def tries(short: int, full: int) -> int:
    """How often something is tried."""
    return full if FULL else short


def record(attack: str, tried: int, failed: int, what: str) -> None:
    """Keep the counts of one kind of attack; `what` says what was tried, and what is a failure."""
    if FULL:
        COUNTS.parent.mkdir(exist_ok=True)
        line = {"attack": attack, "tried": tried, "failed": failed, "what": what}
        with COUNTS.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
