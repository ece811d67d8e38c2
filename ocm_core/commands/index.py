"""Write reports/index.html: all experiments and their best methods at a glance.

From the metrics of all experiments: their best methods by number of steps, with links to the pages
that were made.
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
    from ocm_core.overview.page import FILE, entries, render

    found = entries(Path.cwd())
    FILE.write_text(render(found), encoding="utf-8")
    names = [entry.name for entry in found]
    if arguments.json:
        print(as_json({"page": str(FILE), "experiments": names}))
    else:
        print(f"{FILE}: {', '.join(names) or 'no numbers yet'}")
    return 0
