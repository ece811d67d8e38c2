"""`reports/index.html`: a card for every experiment that has numbers, and a link to its page.

Everything on it comes from what is committed. It has no charts of Plotly's, only small drawings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ocm_core.compare.number_state import CURRENT, number_state
from ocm_core.compare.recorded import REPORTS, RecordedExperiment, names, recorded
from ocm_core.compare.revisions import WorkingTree
from ocm_core.overview import sketch
from ocm_core.overview.best import Best, BestRow, best
from ocm_core.overview.headlines import HeadlineNumber, headlines
from ocm_core.overview.kept import is_current, kept_file, kept_names, read_kept
from ocm_core.overview.routes import USUAL
from ocm_core.overview.thumbnails import Thumbnail, thumbnails
from ocm_core.params.resolved import load
from ocm_core.report.page.style import palettes
from ocm_core.report.statistics.image_results import distance_name
from ocm_core.report.statistics.selections import chain_names
from ocm_core.schema.experiment import Experiment

FILE = Path(REPORTS) / "index.html"
SMOKE = "_smoke"  # how the names of experiments end that show that a chain of stages runs


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    summary: str
    page: str | None  # relative to the index; None: it is not there
    rows: tuple[tuple[str, tuple[tuple[str, Best], ...]], ...]  # by what was measured, and where
    is_kept: bool = False  # whether Git has its page
    old: str = ""  # why the numbers are from before the present code or parameters; blank: not
    pictures: tuple[Thumbnail, ...] = ()
    numbers: tuple[tuple[str, HeadlineNumber], ...] = ()  # with the names of the measures
    sketch: sketch.Sketch | None = None

    @property
    def is_smoke(self) -> bool:
        return self.name.endswith(SMOKE)


def entries(root: Path, pages: Collection[str] | None = None) -> list[Entry]:
    """Those with numbers. `pages` are the experiments to whose pages it can link: those in
    `reports/` if none are named."""
    tree = WorkingTree(root)
    there = {file.stem for file in (root / REPORTS).glob("*.html")} if pages is None else pages
    known = [(load(name), recorded(tree, name)) for name in names(tree)]
    return [_entry(tree, one, found, there) for one, found in known if _rows(one, found)]


def render(found: list[Entry], home: str = "") -> str:
    """`home` is the address of the documentation, where the index is part of a site."""
    shared = PackageLoader("ocm_core.report.page")
    own = PackageLoader("ocm_core.overview")
    environment = Environment(
        loader=ChoiceLoader([own, shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found_css = (
        shared.get_source(environment, "page.css"),
        own.get_source(environment, "index.css"),
    )
    return environment.get_template("index.html").render(
        experiments=[entry for entry in found if not entry.is_smoke],
        smoke=[entry for entry in found if entry.is_smoke],
        home=home,
        css=Markup("\n".join(text for text, *_ in found_css)),
        palettes=palettes(),
        size=(sketch.WIDTH, sketch.HEIGHT),
        usual=USUAL,
    )


def _entry(
    tree: WorkingTree, experiment: Experiment, found: RecordedExperiment, pages: Collection[str]
) -> Entry:
    name, state = experiment.name, number_state(tree, experiment.name)
    numbers = headlines(found, experiment)
    is_kept = name in kept_names(tree.root)
    return Entry(
        name=name,
        title=experiment.report.title,
        summary=experiment.report.summary,
        page=f"{name}.html" if name in pages else None,
        rows=_rows(experiment, found),
        is_kept=is_kept,
        old="" if state == CURRENT else state.removeprefix("stale: "),
        pictures=_pictures(tree.root, name) if is_kept else (),
        numbers=tuple((_measure(experiment, number.metric), number) for number in numbers),
        sketch=sketch.sketch(found, experiment),
    )


def _pictures(root: Path, name: str) -> tuple[Thumbnail, ...]:
    page = read_kept(root, name)
    return thumbnails(page, kept_file(name)) if is_current(root, name, page) else ()


def _rows(
    experiment: Experiment, found: RecordedExperiment
) -> tuple[tuple[str, tuple[tuple[str, Best], ...]], ...]:
    rows = best(found, chain_names(experiment.sample.samplers))
    return tuple((_row_name(experiment, row), tuple(row.cells.items())) for row in rows)


def _row_name(experiment: Experiment, row: BestRow) -> str:
    return f"{_measure(experiment, row.metric)}, {row.sampler.upper()}"


def _measure(experiment: Experiment, metric: str) -> str:
    """The name of a metric, with what its distance is called in its feature space."""
    features = experiment.evaluate.features
    if metric == "fid":
        return distance_name(features.space if features else "")
    if metric == "nll_bpd":
        return "NLL, bits/dim"
    return metric.replace("mmd", "MMD").replace("_", " ")
