"""Write reports/index.html: all experiments and their best methods at a glance.

For each experiment with results: samples, a few numbers, the best methods, a link to its report.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm index                          after a run, a pull or a checkout
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the index."""
    from ocm_core.io.atomic import write_text
    from ocm_core.report.folder import report_names
    from ocm_core.report.index import FILE, index
    from ocm_core.stages.report import all_measures

    write_text(FILE, index(Path.cwd(), all_measures()))
    names = report_names()
    if arguments.json:
        print(as_json({"page": str(FILE), "experiments": names}))
    else:
        print(f"open {FILE}: {', '.join(names) or 'no results yet'}")
    return 0
