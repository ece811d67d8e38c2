"""Say what is installed, and what an experiment needs, before it starts.

Packages against the pinned versions, devices, memory and disk; for an experiment its tasks, the
files that it reads, the disk, the work and the time that it takes on this machine. Exits with 1 if
something is missing that the run cannot download itself, or is not what it should be.
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
        "--nodes", type=at_least_one, metavar="N", help="ask N nodes of a cluster instead"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.nodes:
        return _ask_nodes(arguments.nodes)
    from ocm_core.doctor.diagnosis import as_json, as_text, diagnose
    from ocm_core.pipeline.graph import graph_of

    diagnosis = diagnose(graph_of(arguments.experiment) if arguments.experiment else None)
    print(as_json(diagnosis) if arguments.json else as_text(diagnosis))
    return 1 if diagnosis.problems else 0


def _ask_nodes(nodes: int) -> int:
    from ocm_core.doctor.nodes import problems

    missing = problems(nodes)
    print("\n".join(missing) or f"{plural(nodes, 'node')}: folder, environment, shared locks: yes")
    return 1 if missing else 0
