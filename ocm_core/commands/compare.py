"""Say which results and parameters changed between commits, and if beyond noise.

Between two commits, or between a commit and the working tree; changes are compared with their
standard errors. Exits with 1 only if a commit does not exist, and not if something has changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import add_json, as_json

EXAMPLES = """
  ocm compare                        the working tree against the last commit
  ocm compare v0.1.0 main            two commits, tags or branches
  ocm compare HEAD~3 --page diff.html
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("before", nargs="?", default="HEAD", help="a commit; HEAD if not given")
    parser.add_argument("after", nargs="?", help="a commit; the working tree if not given")
    parser.add_argument(
        "--all", action="store_true", help="show unchanged results and those within noise, too"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write it as a page, too")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison."""
    from ocm_core.results.compare import compare

    found, everything = compare(Path.cwd(), arguments.before, arguments.after), arguments.all
    if arguments.page:
        from ocm_core.io.atomic import write_text
        from ocm_core.report.page import comparison
        from ocm_core.report.render import render

        write_text(arguments.page, render(comparison(found, everything=everything)))
    plain = found.text(everything=everything)
    print(as_json(found.tree(everything=everything)) if arguments.json else plain)
    return 0
