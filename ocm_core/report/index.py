"""The index of all experiments: a card for each folder of `reports/`, and the pages of a site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import PackageLoader
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ocm_core.report.document import BOX
from ocm_core.report.figures import verdict
from ocm_core.report.folder import REPORTS, SAMPLES, ReportFolder, read_folder, report_names
from ocm_core.report.page import page
from ocm_core.report.pictures import uri
from ocm_core.report.render import BUNDLE, make_environment, render
from ocm_core.report.result_table import ResultTable
from ocm_core.report.samples import frame, panel
from ocm_core.report.style import palettes
from ocm_core.report.tables import headline
from ocm_core.results.measures import Registry, measures
from ocm_core.results.study import Study

FILE = REPORTS / "index.html"
SMOKE = "_smoke"  # how the names of experiments end that show that all stages run
_THUMBNAILS = 3


BestMethods = tuple[str, list[tuple[str, str, float]]]  # by measure and setting: where, who, value


@dataclass(frozen=True)
class IndexCard:
    """One experiment."""

    name: str
    title: str
    summary: str
    page: str | None  # relative to the index; None where it was not made
    table: ResultTable | None
    best: tuple[BestMethods, ...]
    verdict: str
    pictures: tuple[str, ...]  # addresses
    drawings: tuple[str, ...]  # paths of points in a square
    note: str

    @property
    def is_smoke(self) -> bool:
        """Tell whether its numbers mean nothing."""
        return self.name.endswith(SMOKE)


def card(folder: ReportFolder, registry: Registry, *, has_page: bool, note: str = "") -> IndexCard:
    """Sum an experiment up."""
    study = Study(folder.results, folder.params, registry)
    return IndexCard(
        name=folder.name,
        title=study.param("report.title", folder.name),
        summary=study.param("report.summary", ""),
        page=f"{folder.name}.html" if has_page else None,
        table=headline(study),
        best=tuple(_best(study)),
        verdict=verdict(study.frontier) if study.frontier and study.solvers else "",
        pictures=tuple(_pictures(folder)),
        drawings=tuple(_drawings(folder)),
        note=note or f"Results of commit {folder.provenance.get('commit', '')[:7]}.",
    )


def index(
    root: Path,
    registry: Registry | None = None,
    *,
    pages: bool = False,
    home: str = "",
    notes: Mapping[str, str] | None = None,
) -> str:
    """Render the index; it links to pages that exist, or to all of them if `pages` is true.

    `home` is the address of the documentation on a site. `notes` says of experiments why their
    results are stale.
    """
    cards = [
        card(
            read_folder(name, root),
            registry or measures(),
            has_page=pages or (root / REPORTS / f"{name}.html").exists(),
            note=(notes or {}).get(name, ""),
        )
        for name in report_names(root)
    ]
    environment, loader = make_environment({}), PackageLoader("ocm_core.report")
    css = [loader.get_source(environment, name)[0] for name in ("page.css", "index.css")]
    return environment.get_template("index.html").render(
        experiments=[one for one in cards if not one.is_smoke],
        smoke=[one for one in cards if one.is_smoke],
        home=home,
        css=Markup("\n".join(css)),
        palettes=palettes(),
        explained={},
        box=BOX,
    )


def site(root: Path, home: str, registry: Registry | None = None) -> dict[str, str]:
    """Return all pages, one copy of Plotly and the index, by their address within a site."""
    known = registry or measures()
    files = {
        f"{REPORTS}/{name}.html": render(page(read_folder(name, root), known), bundle=BUNDLE)
        for name in report_names(root)
    }
    bundle = {f"{REPORTS}/{BUNDLE}": get_plotlyjs()}
    return {f"{FILE}": index(root, known, pages=True, home=home), **files, **bundle}


def _best(study: Study) -> Iterator[BestMethods]:
    """Name the best methods by every measure, with those within noise of them."""
    for measure in study.measures:
        for setting, columns in study.grids[measure.key].items() if measure.better else ():
            cells = [
                (at.where, ", ".join([best, *at.ties()]), at.mean(best))
                for at in columns.values()
                if (best := at.best()) and len(at.entries) > 1
            ]
            if cells and measure.shown:
                yield f"{measure.name}, {study.place(setting)}", cells


def _pictures(folder: ReportFolder) -> Iterator[str]:
    """Return the pictures of the first way to sample."""
    rows = [row for row in folder.pictures if row.figure == SAMPLES]
    for row in rows[:1]:
        yield from [uri(cell) for cell in row.cells if cell is not None][:_THUMBNAILS]


def _drawings(folder: ReportFolder) -> Iterator[str]:
    """Return samples of OCM's head as paths, where data are points of a plane."""
    if folder.points:
        test, samples = folder.points
        shown = [points for (_, method, _), points in samples.items() if "ocm" in method]
        yield from (panel("", x, frame(test), "blue").path for x in shown[:_THUMBNAILS])
