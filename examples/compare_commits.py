"""Which numbers changed between two commits, and whether by more than their noise.

    python examples/compare_commits.py                   the last two commits that changed a number
    python examples/compare_commits.py v0.1.0 main

The same for people: `ocm compare BEFORE AFTER`. This is how a script asks: nothing is run or
checked out, since parameters and numbers of every experiment are committed. docs/running.md goes on
from here.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from ocm_core.compare.changes import ChangeVerdict, compare
from ocm_core.compare.revisions import commit
from ocm_core.compare.text import change, tally


def last_two(root: Path) -> list[str]:
    """The last commit that changed a number, and its parent."""
    listed = ["git", "log", "-1", "--format=%h", "--", "reports/*.metrics.json"]
    last = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout
    return [f"{last.strip()}~1", last.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    root = Path.cwd()
    before, after = parser.parse_args().commits or last_two(root)
    found = compare(commit(root, before), commit(root, after))
    print(f"{before} → {after}")
    for experiment in found.experiments:
        if experiment.differ:
            print(f"{experiment.name}: {tally(experiment)}")
        for parameter in experiment.parameters:
            print(f"  {parameter.key}: {parameter.before} → {parameter.after}")
        for number in experiment.numbers:
            if number.verdict is ChangeVerdict.BEYOND:
                print(f"  {'.'.join(number.key)}: {change(number)}")


if __name__ == "__main__":
    main()
