"""Count the parameters of the published networks.

Without and with a covariance head, beside the numbers of the paper.
"""

from __future__ import annotations

import argparse

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm networks
  ocm networks --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.checkpoints.registry import CHECKPOINTS, counts, table

    rows = [counts(checkpoint) for checkpoint in CHECKPOINTS.values()]
    print(as_json(rows) if arguments.json else table(rows))
    return 0
