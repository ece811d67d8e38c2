"""Set parameters of an experiment, and say what that makes stale.

Writes them into the experiment's overlay, which keeps its comments, and brings all generated files
up to date: every one, or none if a key or a value is wrong. Then says what is to be made again,
and how long it took before. `ocm rerun` makes it.
"""

from __future__ import annotations

import argparse

EXAMPLES = """
  ocm set digits train.heads.learning_rate=1e-3
  ocm set digits 'sample.seeds=[0,1]' sample.count=320
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment")
    parser.add_argument("assignment", nargs="+", metavar="key=value")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.params.resolved import load
    from ocm_core.pipeline.generated_files import set_parameters
    from ocm_core.planning.diagnosis import prospects

    for file in set_parameters(arguments.experiment, arguments.assignment):
        print(f"{file}: written")
    print("\n".join(prospects(load(arguments.experiment))))
    return 0
