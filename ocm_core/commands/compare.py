"""Say which numbers and parameters changed between commits, and if beyond noise.

Between two commits, or between a commit and the working tree; changes are compared with the spread
over seeds. Exits with 1 only if a commit does not exist, and not if something has changed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ocm_core.commands._arguments import add_json

EXAMPLES = """
  ocm compare                        the working tree against the last commit
  ocm compare v0.1.0 main            two commits, tags or branches
  ocm compare HEAD~3 --page diff.html
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", nargs="?", default="HEAD", help="a commit; HEAD if not given")
    parser.add_argument("after", nargs="?", help="a commit; the working tree if not given")
    parser.add_argument(
        "--all", action="store_true", help="show unchanged numbers and those within noise, too"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write it as a page, too")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from ocm_core.compare.changes import compare
    from ocm_core.compare.revisions import Revision, WorkingTree, commit
    from ocm_core.compare.text import as_json, terminal
    from ocm_core.params.resolved import experiment_names, refuse_edits

    if not arguments.after:
        refuse_edits(*experiment_names())
    here = Path.cwd()
    after: Revision = commit(here, arguments.after) if arguments.after else WorkingTree(here)
    comparison = compare(commit(here, arguments.before), after)
    if arguments.page:
        from ocm_core.compare.page import page
        from ocm_core.report.page.render import render

        arguments.page.parent.mkdir(parents=True, exist_ok=True)
        arguments.page.write_text(render(page(comparison, arguments.all)), encoding="utf-8")
    print(as_json(comparison) if arguments.json else terminal(comparison, arguments.all))
    return 0
