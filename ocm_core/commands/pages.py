"""Commands on results: the page of an experiment, the index, and what changed between commits."""

from __future__ import annotations

from pathlib import Path

from ocm_core.commands import JSON, argument, command, show


@command(argument("experiment", "all with results if none is given", nargs="*"))
def report(experiment: list[str]) -> None:
    """Write the page of an experiment, reports/NAME.html, from its folder reports/NAME/.

    The page is a function of that folder: no run and no artifacts are needed.

    examples:
      ocm report digits
      ocm report                         every experiment with results
    """
    from ocm_core.io.atomic import write_text
    from ocm_core.report.folder import REPORTS, read_folder, report_names
    from ocm_core.report.page import page
    from ocm_core.report.render import render
    from ocm_core.stages.report import all_measures

    for name in experiment or report_names():
        file = Path(REPORTS, f"{name}.html")
        write_text(file, render(page(read_folder(name), all_measures())))
        print(f"open {file}")


@command(JSON)
def index(json: bool) -> None:
    """Write reports/index.html: all experiments and their best methods at a glance.

    For each experiment with results: samples, a few numbers, the best methods, a link to its page.

    examples:
      ocm index                          after a run, a pull or a checkout
    """
    from ocm_core.io.atomic import write_text
    from ocm_core.report.folder import report_names
    from ocm_core.report.page import INDEX, index
    from ocm_core.stages.report import all_measures

    write_text(INDEX, index(Path.cwd(), all_measures()))
    names = report_names()
    tree = {"page": str(INDEX), "experiments": names}
    show(json, tree, f"open {INDEX}: {', '.join(names) or 'no results yet'}")


@command(
    argument("before", "a commit; HEAD if not given", nargs="?", default="HEAD"),
    argument("after", "a commit; the working tree if not given", nargs="?"),
    argument("--all", "show unchanged results and those within noise, too", action="store_true"),
    argument("--page FILE", "write it as a page, too", type=Path),
    JSON,
)
def compare(before: str, after: str | None, all: bool, page: Path | None, json: bool) -> None:
    """Say which results and parameters changed between commits, and if beyond noise.

    Between two commits, or between a commit and the working tree; changes are compared with their
    standard errors. Exits with 1 only if a commit does not exist, and not if something has changed.

    examples:
      ocm compare                        the working tree against the last commit
      ocm compare v0.1.0 main            two commits, tags or branches
      ocm compare HEAD~3 --page diff.html
    """
    from ocm_core.results.compare import compare

    found = compare(Path.cwd(), before, after)
    if page:
        from ocm_core.io.atomic import write_text
        from ocm_core.report.page import comparison
        from ocm_core.report.render import render

        write_text(page, render(comparison(found, everything=all)))
    show(json, found.tree(everything=all), found.text(everything=all))
