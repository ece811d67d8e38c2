"""Say which artifacts are current, stale or missing.

Current is what the present parameters, sources and inputs would make; stale says which of them
has changed since.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm status                         the active experiments
  ocm status digits toy_mog9 --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="*", help="the active ones if none is given")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.params.resolved import active_names, load
    from ocm_core.pipeline.staleness import states

    names = arguments.experiment or active_names()
    found = {name: {str(t): s for t, s in states(load(name)).items()} for name in names}
    if arguments.json:
        print(as_json(found))
        return 0
    for name, tasks in found.items():
        for task, state in tasks.items():
            print(f"{name} {task}: {state}")
    return 0
