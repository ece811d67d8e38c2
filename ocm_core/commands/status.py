"""Say which artifacts and numbers are current, stale or missing.

Current is what the present parameters, sources and inputs would make; stale says which of them
has changed since, or which artifact has to be made again first. `numbers` are those in reports/,
which are kept where the artifacts are not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm status                         the active experiments
  ocm status digits toy_mog9 --json
  ocm status --write                 when numbers or code have changed: in the documents
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="*", help="the active ones if none is given")
    add_json(parser)
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the figures into README.md and docs/results.md, too, and whose are from before",
    )


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.compare.number_state import number_state
    from ocm_core.compare.revisions import WorkingTree
    from ocm_core.overview import result_notes
    from ocm_core.params.resolved import active_names, load
    from ocm_core.pipeline.staleness import states

    here = Path.cwd()
    found: dict[str, dict[str, str]] = {}
    for name in arguments.experiment or active_names():
        found[name] = {str(task): state for task, state in states(load(name)).items()}
        found[name]["numbers"] = number_state(WorkingTree(here), name)
    if arguments.write:
        result_notes.write(here)
    if arguments.json:
        print(as_json(found))
        return 0
    for name, tasks in found.items():
        for task, state in tasks.items():
            print(f"{name} {task}: {state}")
    return 0
