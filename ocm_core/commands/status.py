"""Say which artifacts and results are up to date, stale or missing.

Stale says which parameters, sources or inputs have changed since, or which artifact has to be made
again first. `results` are those in reports/, which Git keeps where the artifacts are not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm status                         the active experiments
  ocm status digits toy_mog9 --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="*", help="the active ones if none is given")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.params.compose import active_names
    from ocm_core.pipeline.graph import graph_of
    from ocm_core.pipeline.state import abandoned, results_state, states

    shown: dict[str, dict[str, str]] = {}
    for name in arguments.experiment or active_names():
        graph = graph_of(name)
        shown[name] = {str(task): state for task, state in states(graph).items()}
        shown[name]["results"] = results_state(graph, Path("reports"))
        for folder, size in abandoned(graph):
            shown[name][str(folder)] = f"left by an interrupted run, {size} bytes; see `ocm clean`"
    if arguments.json:
        print(as_json(shown))
        return 0
    for name, tasks in shown.items():
        for task, state in tasks.items():
            print(f"{name} {task}: {state}")
    return 0
