"""Commands on artifacts and results: what is up to date and whole, the records, the pages."""

import shutil
from pathlib import Path

from ocm_core.commands import ACTIVE, JSON, argument, command, known, show
from ocm_core.errors import OcmError
from ocm_core.io.atomic import write_text


@command(ACTIVE, JSON)
def status(experiment: list[str], json: bool) -> None:
    """Say which artifacts and results are up to date, stale or missing.

    Stale says which parameters, sources or inputs have changed since, or which artifact has to be
    made again first. `results` are those in reports/, which Git keeps where the artifacts are not.

    examples:
      ocm status                         the active experiments
      ocm status digits toy_mog9 --json
    """
    from ocm_core.params.compose import active_names
    from ocm_core.pipeline.artifacts import manifest_of
    from ocm_core.pipeline.graph import graph_of
    from ocm_core.pipeline.state import MISSING, abandoned, results_state, states

    lost: list[str] = []
    shown: dict[str, dict[str, str]] = {}
    for name in experiment or active_names():
        graph = graph_of(name)
        found = states(graph)
        shown[name] = {str(task): state for task, state in found.items()}
        if Path("reports", f"{name}.html").exists():  # Snakemake would ask for nothing before it
            missing = [task for task, state in found.items() if state == MISSING]
            along = {node for task in missing for node in graph.inputs[task]}  # made with those
            lost += [str(manifest_of(name, task)) for task in missing if task not in along]
        shown[name]["results"] = results_state(graph, Path("reports"))
        for folder, size in abandoned(graph):
            shown[name][str(folder)] = f"left by an interrupted run, {size} bytes; see `ocm clean`"
    lines = [f"{name} {at}: {state}" for name in shown for at, state in shown[name].items()]
    if lost:
        lines.append(
            f"`snakemake --cores all {' '.join(lost)}` makes what is missing behind a page"
        )
    show(json, shown, "\n".join(lines))


@command(ACTIVE, JSON)
def verify(experiment: list[str], json: bool) -> int:
    """Recompute every sha256 and name what differs.

    Reads each file of each artifact and compares it with the artifact's manifest. Exits with 1 if a
    file is missing, extra or changed, or an artifact is not there.

    examples:
      ocm verify                         the active experiments
      ocm verify digits --json
    """
    from ocm_core.params.compose import active_names
    from ocm_core.pipeline.artifacts import differences
    from ocm_core.pipeline.graph import graph_of

    wrong: list[str] = []
    for name in experiment or active_names():
        for task in graph_of(name).tasks:
            try:
                wrong += differences(name, task)
            except OcmError as error:
                wrong.append(str(error))
    said = f"{len(wrong)} differences" if wrong else "every file is as its manifest says"
    show(json, wrong, "\n".join([*wrong, said]))
    return 1 if wrong else 0


@command(ACTIVE)
def clean(experiment: list[str]) -> None:
    """Remove what interrupted runs of parameters or code that have since changed have left.

    What a run would resume from stays. Nothing of a finished artifact is touched.

    examples:
      ocm clean                          the active experiments
      ocm clean imagenet256
    """
    from ocm_core.params.compose import active_names
    from ocm_core.pipeline.graph import graph_of
    from ocm_core.pipeline.state import abandoned

    for name in experiment or active_names():
        for folder, size in abandoned(graph_of(name)):
            shutil.rmtree(folder)
            print(f"{folder}: removed, {size} bytes")


@command(argument("experiment", type=known))
def plan(experiment: str) -> None:
    """Write a digest of each phase's parameters and code, which DVC compares.

    DVC's first stage calls it after an edit in `params/` or in the code, so that the edit reaches
    the phases that it concerns and no others.

    examples:
      ocm plan digits
    """
    from ocm_core.sync import write_plan

    print(f"{write_plan(experiment)}: written")


@command(ACTIVE)
def sync(experiment: list[str]) -> None:
    """Make Snakemake's and DVC's records agree, without computing anything.

    After `dvc pull`, `checkout` or `repro` Snakemake follows DVC; after a run of Snakemake DVC
    follows it, which a run that succeeds does by itself. Exits with 1, and records nothing, if an
    artifact is stale, missing or damaged.

    examples:
      ocm sync                           the active experiments
      ocm sync digits                    one of them
    """
    from ocm_core.sync import sync

    print(sync(experiment))


@command(argument("experiment", "all with results if none is given", nargs="*"))
def report(experiment: list[str]) -> None:
    """Write the page of an experiment, reports/NAME.html, from its folder reports/NAME/.

    The page is a function of that folder: no run and no artifacts are needed.

    examples:
      ocm report digits
      ocm report                         every experiment with results
    """
    from ocm_core.report.folder import REPORTS, read_folder, report_names

    folders = {name: read_folder(name) for name in experiment or report_names()}

    from ocm_core.report.page import page
    from ocm_core.report.render import render
    from ocm_core.stages.report import all_measures

    for name, folder in folders.items():
        file = Path(REPORTS, f"{name}.html")
        write_text(file, render(page(folder, all_measures())))
        print(f"open {file}")


@command(JSON)
def index(json: bool) -> None:
    """Write reports/index.html: all experiments and their best methods at a glance.

    For each experiment with results: samples, a few numbers, the best methods, a link to its page.

    examples:
      ocm index                          after a run, a pull or a checkout
    """
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
        from ocm_core.report.page import comparison
        from ocm_core.report.render import render

        write_text(page, render(comparison(found, everything=all)))
    show(json, found.tree(everything=all), found.text(everything=all))
