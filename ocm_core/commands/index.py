"""Write reports/index.html: all experiments and their best methods at a glance.

For each experiment that has metrics, the best method at each number of steps, and a link to its
report.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm index                          after a run, a pull or a checkout
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.io.atomic import write_text
    from ocm_core.overview.page import FILE, entries, render

    found = entries(Path.cwd())
    write_text(FILE, render(found))
    names = [entry.name for entry in found]
    if arguments.json:
        print(as_json({"page": str(FILE), "experiments": names}))
    else:
        print(f"open {FILE}: {', '.join(names) or 'no numbers yet'}")
    return 0
