"""Write the page of an experiment, reports/NAME.html, from its folder reports/NAME/.

The page is a function of that folder: no run and no artifacts are needed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """
  ocm report digits
  ocm report                         every experiment with results
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("experiment", nargs="*", help="all with results if none is given")


def run(arguments: argparse.Namespace) -> int:
    """Write the pages."""
    from ocm_core.io.atomic import write_text
    from ocm_core.report.folder import REPORTS, read_folder, report_names
    from ocm_core.report.page import page
    from ocm_core.report.render import render
    from ocm_core.stages.report import all_measures

    for name in arguments.experiment or report_names():
        file = Path(REPORTS, f"{name}.html")
        write_text(file, render(page(read_folder(name), all_measures())))
        print(f"open {file}")
    return 0
