"""Say what is installed, and what an experiment needs, before it starts.

Packages against the pinned versions, devices, memory and disk; of an experiment: its tasks, the
published files it needs, and the disk and time it will take. Exits with 1 if something that is
needed is missing.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json

EXAMPLES = """
  ocm doctor                         this machine and this environment
  ocm doctor imagenet256             and what that experiment still needs
  ocm doctor digits --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="?")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.params.resolved import load
    from ocm_core.planning.diagnosis import as_json, as_text, diagnose

    found = diagnose(load(arguments.experiment) if arguments.experiment else None)
    print(as_json(found) if arguments.json else as_text(found))
    return 1 if found.problems else 0
