"""Make what is stale in an experiment, and compare its numbers with the last commit's.

The same as `snakemake --cores all reports/NAME.html` followed by `ocm compare`, for one experiment.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

EXAMPLES = """
  ocm rerun digits                   after `ocm set digits ...` or an edit in params/
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.compare.changes import compare
    from ocm_core.compare.revisions import WorkingTree, commit
    from ocm_core.compare.text import terminal

    here, name = Path.cwd(), arguments.experiment
    before = commit(here, "HEAD")
    snakemake = str(Path(sys.executable).with_name("snakemake"))
    wanted = [f"reports/{name}.{kind}" for kind in ("html", "metrics.json")]
    made = subprocess.run([snakemake, "--cores", "all", *wanted])
    if made.returncode:
        return 1
    found = compare(before, WorkingTree(here))
    asked = tuple(one for one in found.experiments if one.name == name)
    print(terminal(replace(found, experiments=asked), everything=False))
    return 0
