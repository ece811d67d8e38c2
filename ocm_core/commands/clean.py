"""Remove what interrupted runs of parameters or code that have since changed have left.

What a run would resume from stays. Nothing of a finished artifact is touched.
"""

from __future__ import annotations

import argparse
import shutil

EXAMPLES = """
  ocm clean                          the active experiments
  ocm clean imagenet256
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="*", help="the active ones if none is given")


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.params.compose import active_names
    from ocm_core.pipeline.graph import graph_of
    from ocm_core.pipeline.state import abandoned

    for name in arguments.experiment or active_names():
        for folder, size in abandoned(graph_of(name)):
            shutil.rmtree(folder)
            print(f"{folder}: removed, {size} bytes")
    return 0
