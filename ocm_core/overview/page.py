"""`reports/index.html`: every experiment that has numbers, its best methods, and its page.

A page of its own kind: it links to other files and has no charts, so it carries no Plotly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ocm_core.compare.recorded import REPORTS, names, recorded
from ocm_core.compare.revisions import WorkingTree
from ocm_core.overview.best import Best, Row, best
from ocm_core.params.resolved import load
from ocm_core.report.evidence import PUBLISHED_SPACE
from ocm_core.report.style import palettes
from ocm_core.schema.experiment import Experiment, SamplerParams

FILE = Path(REPORTS) / "index.html"


@dataclass(frozen=True)
class Entry:
    name: str
    title: str
    summary: str
    page: str | None  # relative to the index; None: it has not been made here
    places: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Best | None, ...]], ...]  # by what was measured, along the places


def entries(root: Path) -> list[Entry]:
    """Those with numbers, whether or not their page was made here."""
    tree = WorkingTree(root)
    experiments = [load(name) for name in names(tree)]
    found = [(e, best(recorded(tree, e.name), _alike(e.sample.samplers))) for e in experiments]
    return [_entry(root, experiment, rows) for experiment, rows in found if rows]


def render(found: list[Entry]) -> str:
    shared = PackageLoader("ocm_core.report")
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("ocm_core.overview"), shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = Markup(shared.get_source(environment, "page.css")[0])
    return environment.get_template("index.html").render(
        entries=found, css=css, palettes=palettes()
    )


def _entry(root: Path, experiment: Experiment, rows: list[Row]) -> Entry:
    page = f"{experiment.name}.html"
    places = tuple(dict.fromkeys(where for row in rows for where in row.cells))
    return Entry(
        name=experiment.name,
        title=experiment.report.title,
        summary=experiment.report.summary,
        page=page if (root / REPORTS / page).exists() else None,
        places=places,
        rows=tuple(
            (_measure(experiment, row), tuple(row.cells.get(where) for where in places))
            for row in rows
        ),
    )


def _alike(samplers: Mapping[str, SamplerParams]) -> dict[str, str]:
    """Each sampler to the first that takes the same steps, maybe with other methods."""
    first: dict[tuple[object, ...], str] = {}
    return {
        name: first.setdefault((s.kind, s.eta, s.rederive_eps, s.chain, s.last_sigma), name)
        for name, s in samplers.items()
    }


def _measure(experiment: Experiment, row: Row) -> str:
    """A Fréchet distance is an FID only in Inception's features."""
    features = experiment.evaluate.features
    if row.metric == "fid":
        known = features is not None and features.space == PUBLISHED_SPACE
        name = "FID" if known else "Fréchet distance"
    elif row.metric == "nll_bpd":
        name = "NLL, bits/dim"
    else:
        name = row.metric.replace("mmd", "MMD").replace("_", " ")
    return f"{name}, {row.sampler.upper()}"
