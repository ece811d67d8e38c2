"""Which results changed between two commits, and whether by more than their noise.

    python examples/compare_commits.py                   the last two commits that changed results
    python examples/compare_commits.py v0.1.0 main

The same for people: `ocm compare BEFORE AFTER`. This is how a script asks: nothing is run or
checked out, since parameters and results of every experiment are committed. docs/running.md goes on
from here.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from ocm_core.results.compare import ChangeVerdict, compare


def last_two(root: Path) -> list[str]:
    """Return the last commit that changed a result, and its parent."""
    listed = ["git", "log", "-1", "--format=%h", "--", "reports/*/results.csv"]
    last = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout
    return [f"{last.strip()}~1", last.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    root = Path.cwd()
    before, after = parser.parse_args().commits or last_two(root)
    print(f"{before} → {after}")
    for experiment in compare(root, before, after).experiments:
        if experiment.differ:
            print(f"{experiment.name}: {experiment.summary}")
        for key, old, new in experiment.parameters:
            print(f"  {key}: {old} → {new}")
        for number in experiment.numbers:
            if number.verdict is ChangeVerdict.BEYOND:
                print(f"  {number.measure}, {number.place}: {number.gap}")


if __name__ == "__main__":
    main()
