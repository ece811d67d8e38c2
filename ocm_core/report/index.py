"""The index of all experiments: a card for each folder of `reports/`, and the pages of a site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from ocm_core.report.figures import verdict
from ocm_core.report.folder import REPORTS, SAMPLES, ReportFolder, read_folder, report_names
from ocm_core.report.page import page
from ocm_core.report.render import BUNDLE, render, render_template
from ocm_core.report.samples import frame, panel, uri
from ocm_core.report.tables import headline
from ocm_core.results.measures import Registry, measures
from ocm_core.results.study import Study

FILE = REPORTS / "index.html"
SMOKE = "_smoke"  # how the names of experiments end that show that all stages run
_THUMBNAILS = 3


def index(
    root: Path, registry: Registry | None = None, *, pages: bool = False, home: str = ""
) -> str:
    """Render the index; it links to pages that exist, or to all of them if `pages` is true.

    `home` is the address of the documentation on a site.
    """
    cards: dict[bool, list[dict[str, Any]]] = {False: [], True: []}  # by whether it is a smoke run
    for name in report_names(root):
        has_page = pages or (root / REPORTS / f"{name}.html").exists()
        card = _card(read_folder(name, root), registry or measures(), has_page=has_page)
        cards[name.endswith(SMOKE)].append(card)
    return render_template("index.html", experiments=cards[False], smoke=cards[True], home=home)


def site(root: Path, home: str, registry: Registry | None = None) -> dict[str, str]:
    """Return all pages, one copy of Plotly and the index, by their address within a site."""
    known = registry or measures()
    files = {
        f"{REPORTS}/{name}.html": render(page(read_folder(name, root), known), bundle=BUNDLE)
        for name in report_names(root)
    }
    bundle = {f"{REPORTS}/{BUNDLE}": get_plotlyjs()}
    return {f"{FILE}": index(root, known, pages=True, home=home), **files, **bundle}


def _card(folder: ReportFolder, registry: Registry, *, has_page: bool) -> dict[str, Any]:
    """Sum an experiment up, as the template shows it."""
    study = Study(folder.results, folder.params, registry)
    rows = folder.rows_of(SAMPLES)[:1]
    pictures = [uri(cell) for row in rows for cell in row.cells if cell is not None]
    drawings = []
    if folder.points:
        test, samples = folder.points
        plane = [points for (_, method, _), points in samples.items() if "ocm" in method]
        drawings = [panel("", x, frame(test), "blue").path for x in plane[:_THUMBNAILS]]
    return {
        "name": folder.name,
        "title": study.param("report.title", folder.name),
        "summary": study.param("report.summary", ""),
        "page": f"{folder.name}.html" if has_page else None,
        "table": headline(study),
        "best": [*_best(study)],
        "verdict": verdict(study.frontier) if study.frontier and study.solvers else "",
        "pictures": pictures[:_THUMBNAILS],
        "drawings": drawings,
        "note": f"Results of commit {folder.provenance.get('commit', '')[:7]}.",
    }


def _best(study: Study) -> Iterator[tuple[str, list[tuple[str, str, float]]]]:
    """Name the best methods by every measure, with those within noise of them."""
    for measure in study.measures:
        if not (measure.better and measure.shown):
            continue
        for setting, columns in study.grids[measure.key].items():
            cells = [
                (at.where, ", ".join([best, *at.ties()]), at.mean(best))
                for at in columns.values()
                if (best := at.best()) and len(at.entries) > 1
            ]
            if cells:
                yield f"{measure.name}, {study.place(setting)}", cells
