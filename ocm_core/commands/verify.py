"""Recompute every sha256 and name what differs.

Reads each file of each artifact and compares it with the artifact's manifest. Exits with 1 if a
file is missing, extra or changed, or an artifact is not there.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, as_json
from ocm_core.errors import OcmError

EXAMPLES = """
  ocm verify                         the active experiments
  ocm verify digits --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="?", help="the active ones if none is given")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.params.compose import active_names
    from ocm_core.pipeline.artifacts import differences
    from ocm_core.pipeline.graph import graph_of

    wrong: list[str] = []
    for name in [arguments.experiment] if arguments.experiment else active_names():
        for task in graph_of(name).tasks:
            try:
                lines = list(differences(name, task))
            except OcmError as error:
                lines = [str(error)]
            wrong += lines
            if lines and not arguments.json:
                print("\n".join(lines))
    if arguments.json:
        print(as_json(wrong))
    else:
        print(f"{len(wrong)} differences" if wrong else "every file is as its manifest says")
    return 1 if wrong else 0
