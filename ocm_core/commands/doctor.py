"""Say what is installed, and what an experiment needs, before it starts.

Packages against the pinned versions, devices, memory and disk; of an experiment: its tasks, the
published files it needs, and the disk and time it will take. Exits with 1 if something is missing
that the run cannot download itself, or is not what it should be.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, at_least_one
from ocm_core.text import plural

EXAMPLES = """
  ocm doctor                         this machine and this environment
  ocm doctor imagenet256             and what that experiment still needs
  ocm doctor digits --json
  ocm doctor --nodes 2               whether nodes of a SLURM cluster have what a job needs
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="?")
    parser.add_argument(
        "--nodes", type=at_least_one, metavar="N", help="ask so many nodes of a cluster instead"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.nodes:
        return _ask_nodes(arguments.nodes)
    from ocm_core.params.resolved import load
    from ocm_core.planning.diagnosis import as_json, as_text, diagnose

    found = diagnose(load(arguments.experiment) if arguments.experiment else None)
    print(as_json(found) if arguments.json else as_text(found))
    return 1 if found.problems else 0


def _ask_nodes(nodes: int) -> int:
    from ocm_core.planning.nodes import problems

    found = problems(nodes)
    said = f"{plural(nodes, 'node')}: folder, environment and shared locks are there"
    print("\n".join(found) or said)
    return 1 if found else 0
