"""Write a digest of each phase's parameters and code, which DVC compares.

DVC's first stage calls it after an edit in `params/` or in the code, so that the edit reaches the
phases that it concerns and no others.
"""

from __future__ import annotations

import argparse

EXAMPLES = """
  ocm plan digits
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.pipeline.sync import write_plan

    print(f"{write_plan(arguments.experiment)}: written")
    return 0
