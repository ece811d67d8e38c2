"""The page of an experiment, as a function of its folder, and the index of all experiments."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ocm_core.report import document as doc
from ocm_core.report import figures, paper, samples, tables
from ocm_core.report import folder as files
from ocm_core.report.document import DataTable, Page, PageBlock, Section
from ocm_core.report.folder import REPORTS, ReportFolder, read_folder, report_names
from ocm_core.report.render import BUNDLE, render, render_template
from ocm_core.report.tables import BOUND
from ocm_core.results import claims
from ocm_core.results.compare import COLUMNS, Revisions
from ocm_core.results.measures import Measure, Registry, measures
from ocm_core.results.replicates import Comparison
from ocm_core.results.study import SMOKE, Study
from ocm_core.text import leaves, listed, plural

_PARTS = ("bits_per_dim_prior", "bits_per_dim_steps", "bits_per_dim_decoder")
_HEADLINE_NFE = (5, 10)
INDEX = REPORTS / "index.html"
_THUMBNAILS = 3


def page(folder: ReportFolder, registry: Registry | None = None) -> Page:
    """Build the page from the folder alone."""
    study = Study(folder.results, folder.params, registry or measures())
    checked = tuple(claims.check(study)) if study.is_conclusive else ()
    compared = paper.compare(study, paper.published(study))
    relative = [m.label for m in study.methods.values() if m.is_relative]
    told = doc.Claims(checked, relative) if checked else None
    given, own = study.param("sample.samplers", {}), dict.fromkeys(study.recipe_names.values())
    samplers = {label: given[label] for label in own if label not in study.methods}
    explained = "A line and an equation for each method, and a line for each sampler."
    sections = [
        _section("claims", "Which of the paper's claims hold?", claims.summary(checked), told),
        *_sample_sections(study, folder, compared),
        _likelihood(study, folder, compared),
        *_further(study, folder),
        paper.section(study, compared),
        *_made(study, folder),
        _section("glossary", "Glossary", explained, doc.Glossary(study.methods, samplers)),
        _provenance(study, folder),
    ]
    table = tables.headline(study)
    glance = (
        samples.sheet(study, folder),
        figures.frontier_figure(study),
        doc.Headline(table, checked) if table else None,
    )
    title, subtitle = study.param("report.title", folder.name), study.param("report.summary", "")
    shown = tuple(section for section in sections if section.blocks)
    return Page(title, subtitle, shown, glance=tuple(block for block in glance if block))


def _section(id: str, title: str, finding: str, *blocks: PageBlock | None) -> Section:
    """Leave out the blocks that there are not."""
    return Section(id, title, tuple(block for block in blocks if block), finding)


def _sample_sections(
    study: Study, folder: ReportFolder, compared: Sequence[paper.Compared]
) -> Iterator[Section]:
    """Show the quality of samples, in each space of features."""
    known = [measure for measure in study.measures if measure.ranks_samples and measure.shown]
    for space in dict.fromkeys(measure.space for measure in known):
        first, *others = here = [measure for measure in known if measure.space == space]
        ending = f"-{space}" if space else ""
        name = study.space_name(first)
        title = f"And in the features of {name}?" if space else "How good are the samples?"
        intro = f"{first.about} Features of {name}: its numbers compare with one another only."
        plane = samples.plane_panels(study, *folder.points) if folder.points and not space else None
        yield _section(
            *(f"quality{ending}", title, _leaders(study, first)),
            intro if name else first.about,
            None if study.is_plane else figures.differences(study, first),
            figures.curves(study, [first], f"{first.key.replace('.', '-')}-by-nfe"),
            figures.curves(study, others, f"other-measures{ending}"),
            *(tables.measure_table(study, m, paper.printed(compared, m.key)) for m in here),
            plane,
        )


def _leaders(study: Study, measure: Measure) -> str:
    """Say which methods are best at small nfe, by sampler, of those without further evaluations."""
    if not study.is_conclusive:
        return ""
    parts: dict[int, list[str]] = {}
    for setting, columns in study.grids[measure.key].items():
        if setting.score not in ("", study.score) or setting.guidance not in (None, study.guidance):
            continue
        place = setting.sampler.upper() or f"{setting.timesteps} timesteps"
        for nfe in _HEADLINE_NFE:
            at = columns.get(nfe, Comparison(""))
            equal = {k: v for k, v in at.entries.items() if study.evaluations(k) == 1}
            if len((at := at._replace(entries=equal)).ranked()) > 1:
                best, ties = at.ranked()[0], len(at.ties())
                others = f", {ties} more within noise" if ties else ""
                told = f"{best} ({at.mean(best):.3g}{others}) with {place}"
                parts.setdefault(nfe, []).append(told)
    by_nfe = [f"at nfe {nfe} that of {listed(parts[nfe])}" for nfe in sorted(parts)]
    return f"The best {measure.name} among covariances is {'; '.join(by_nfe)}." if by_nfe else ""


def _likelihood(study: Study, folder: ReportFolder, compared: Sequence[paper.Compared]) -> Section:
    """Show the bound, its parts, and the timesteps that make it lowest."""
    blocks: list[PageBlock | None] = []
    finding = ""
    if BOUND in study.grids:
        measure = study.registry[BOUND]
        count = folder.notes.get("images", {}).get("likelihood")
        items = f" of {count} test {'points' if study.is_plane else 'images'}" if count else ""
        caption = (
            f"The variational bound on the negative log-likelihood{items} in bits per dimension. "
            "A number at the edge is the value of a point beyond it. All methods and timesteps see "
            f"the same data with the same noise. {_own_decoders(study)}{_in_pairs(study)}"
        )
        parts = [study.registry[key] for key in _PARTS if key in study.grids]
        blocks = [
            figures.curves(study, [measure], "nll", caption),
            tables.measure_table(study, measure, paper.printed(compared, BOUND)),
            figures.curves(study, parts if len(parts) == len(_PARTS) else [], "nll-parts"),
        ]
        finding = _leaders(study, measure)
    if folder.timesteps:
        items = f"{study.param('train.timesteps.images', 'some')} training data"
        blocks.append(figures.chosen_timesteps(study, folder.timesteps, items))
    return _section("likelihood", "How likely are the data?", finding, *blocks)


def _own_decoders(study: Study) -> str:
    """Name the rules of timesteps that are chosen for a decoder of their own."""
    words = {"method": "the method's own variance", "fixed": "a fixed variance"}
    rules = study.param("evaluate.likelihood.timesteps", {}).items()
    chosen = {name: words[v] for name, rule in rules if (v := rule.get("decoder_variance"))}
    return "".join(
        f"With {name} timesteps the step into the data has {told}, and they are chosen for it. "
        for name, told in chosen.items()
    )


def _in_pairs(study: Study) -> str:
    """Count in how many cells each rule of timesteps is lower than the first, image by image."""
    said = []
    for setting, columns in study.grids.get("bits_per_dim_difference", {}).items():
        gaps = [cell.estimate for at in columns.values() for cell in at.entries.values()]
        above = sum(gap.mean > gap.error for gap in gaps)
        within = sum(gap.mean > 0 for gap in gaps) - above
        said.append(
            f"{study.place(setting)} beside the first, in pairs: of {len(gaps)} bounds "
            f"{len(gaps) - above - within} are lower, {within} higher by less than a standard "
            f"error of the difference, {above} by more."
        )
    return " ".join(said)


def _further(study: Study, folder: ReportFolder) -> Iterator[Section]:
    """Show measures that no other section is about, guidance, and what the heads predict."""
    topics: dict[str, list[Measure]] = {}
    for measure in study.measures:
        own = measure.key in study.grids and measure.key != BOUND
        if own and measure.shown and not measure.ranks_samples:
            topics.setdefault(measure.topic or measure.name, []).append(measure)
    for title, alike in topics.items():
        names = [measure.key.replace(".", "-").replace("_", "-") for measure in alike]
        blocks: list[PageBlock | None] = []
        for id, measure in zip(names, alike, strict=True):
            if measure.key == "crps":
                blocks.append(samples.scaled_pictures(folder, files.RESTORATION))
            blocks += [measure.about] if measure.topic else []
            single = all(len(columns) == 1 for columns in study.grids[measure.key].values())
            drawn = not (measure.topic and single)  # else a table says as much
            blocks += [figures.curves(study, [measure], id)] if drawn else []
            blocks.append(tables.measure_table(study, measure))
        finding = _leading(study, alike) if alike[0].topic else alike[0].about
        heading = f"{title[0].upper()}{title[1:]}"
        yield _section(f"measure-{names[0]}", heading, finding, *blocks)
    shown = [m for m in (study.quality, study.registry["recall"]) if m and m.key in study.grids]
    guided = figures.along_guidance(study, shown) if study.is_guided else None
    yield _section("guidance-section", "What does guidance trade?", "", guided)
    deviations = samples.scaled_pictures(folder, files.POSTERIOR_STD)
    finding = samples.nearest_head(deviations) if deviations and study.is_conclusive else ""
    yield _section("deviations", "What do the heads predict?", finding, deviations)


def _leading(study: Study, alike: Sequence[Measure]) -> str:
    """Name the best method by each measure, and where it is best if it is not everywhere."""
    told = []
    for measure in (m for m in alike if m.better and study.is_conclusive):
        places: dict[str, list[str]] = {}
        for setting, columns in study.grids[measure.key].items():
            for at in columns.values():
                where = at.where if len(columns) > 1 else study.place(setting)
                if len(at.entries) > 1 and (best := at.best()):
                    places.setdefault(best, []).append(where)
        alone = len(places) == 1
        names = [best if alone else f"{best} ({listed(where)})" for best, where in places.items()]
        told += [f"by {measure.name} {', '.join(names)}"] if names else []
    return f"The best is {'; '.join(told)}." if told else listed([m.name for m in alike])


def _made(study: Study, folder: ReportFolder) -> Iterator[Section]:
    """Show what methods cost, and how networks were trained."""
    said = "Operations are those of a step with the method, relative to the network alone."
    finding = "Heads add parameters; probes and exact Jacobians add backward passes to every step."
    shown = said if "operations" in study.grids else None
    table = tables.methods(study, folder.notes)
    yield _section("methods", "What do methods cost?", finding, shown, table)
    curves = folder.curves
    blocks: list[PageBlock | None] = [figures.training_curves(study, curves) if curves else None]
    for row in study.results.select(measure="loss"):
        error = f" ± {row.error:.1g}" if row.error else ""
        blocks.append(f"{study.registry['loss'].about} It is {row.value:.4f}{error}.")
    replaced = {k: n for k, n in folder.notes.get("replaced_baselines", {}).items() if n}
    if replaced:
        told = listed([f"{plural(n, 'timestep')} with the {k} score" for k, n in replaced.items()])
        blocks.append(
            "Heads with a baseline are relative to the mean posterior variance at each t. Where "
            "its estimate was not positive, the variance of a Gaussian took its place: at up to "
            f"{told}."
        )
    if shares := tables.clamped(study):
        clamped = (
            "Some estimates of Cov[x₀ | xₜ] were out of range (negative, or above the limit), and "
            "were set to its end. The share of such entries, in percent:"
        )
        blocks += [clamped, shares]
    yield _section("training", "Training", figures.levelled(curves) if curves else "", *blocks)


def _provenance(study: Study, folder: ReportFolder) -> Section:
    settings = {}
    for key in ("data", "schedule", "train"):  # the blocks of parameters that made the networks
        block = study.param(key)
        for inner, value in block.items() if isinstance(block, dict) else ():
            parts = leaves({"": "" if value is None else value})
            told = (f"{k.replace('.', ' ')} {part}".strip() for k, part in parts if part != {})
            settings[f"{key}.{inner}"] = ", ".join(told)
    remake = f"snakemake --cores 2 reports/{study.param('name', folder.name)}.html"
    facts = doc.Provenance(folder.provenance, study.param("sample", {}), remake, settings)
    return _section("provenance", "Provenance", f"Made again by {remake}", facts)


def comparison(found: Revisions, *, everything: bool) -> Page:
    """Return what changed between two revisions as a page of its own."""
    sections = []
    for one in found.experiments:
        params = tuple((key, str(before), str(after)) for key, before, after in one.parameters)
        rows = tuple(one.rows(everything=everything))
        both = [DataTable(f"{one.name}-params", ("parameter", "before", "after"), params)]
        both.append(DataTable(f"{one.name}-results", COLUMNS, rows))
        if everything or one.differ:
            shown = (table for table in both if table.rows)
            sections.append(_section(one.name, one.name, "", one.summary, *shown))
    title = f"{found.before} → {found.after}"
    subtitle = "Which results and parameters differ, experiment by experiment."
    summary = tuple(f"{one.name}: {one.summary}." for one in found.experiments)
    return Page(title, subtitle, tuple(sections), summary)


def index(
    root: Path, registry: Registry | None = None, *, pages: bool = False, home: str = ""
) -> str:
    """Render the index, with links to pages that exist or to all `pages`, and to docs at `home`."""
    cards: dict[bool, list[dict[str, Any]]] = {False: [], True: []}  # True: of smoke runs
    for name in report_names(root):
        has_page = pages or (root / REPORTS / f"{name}.html").exists()
        card = _card(read_folder(name, root), registry or measures(), has_page=has_page)
        cards[name.endswith(SMOKE)].append(card)
    return render_template("index.html", experiments=cards[False], smoke=cards[True], home=home)


def site(root: Path, home: str, registry: Registry | None = None) -> dict[str, str]:
    """Return all pages, one copy of Plotly and the index, by their address within a site."""
    from plotly.offline import get_plotlyjs

    known = registry or measures()
    pages = {f"{INDEX}": index(root, known, pages=True, home=home)}
    for name in report_names(root):
        shown = page(read_folder(name, root), known)
        pages[f"{REPORTS}/{name}.html"] = render(shown, bundle=BUNDLE)
    return pages | {f"{REPORTS}/{BUNDLE}": get_plotlyjs()}


def _card(folder: ReportFolder, registry: Registry, *, has_page: bool) -> dict[str, Any]:
    """Sum an experiment up, as the template shows it."""
    study = Study(folder.results, folder.params, registry)
    rows = folder.rows_of(files.SAMPLES)[:1]
    pictures = [samples.uri(cell) for row in rows for cell in row.cells if cell is not None]
    drawings = []
    if folder.points:
        test, given = folder.points
        plane = [points for (_, method, _), points in given.items() if "ocm" in method]
        drawings = [samples.panel("", x, samples.frame(test), "blue") for x in plane[:_THUMBNAILS]]
    return {
        "name": folder.name,
        "title": study.param("report.title", folder.name),
        "summary": study.param("report.summary", ""),
        "page": f"{folder.name}.html" if has_page else None,
        "table": tables.headline(study),
        "best": [*_best(study)],
        "verdict": figures.verdict(study, study.frontier)
        if study.frontier and study.solvers
        else "",
        "pictures": pictures[:_THUMBNAILS],
        "drawings": [drawing.path for drawing in drawings],
        "note": f"Results of commit {folder.provenance.get('commit', '')[:7]}.",
    }


def _best(study: Study) -> Iterator[tuple[str, list[tuple[str, str, float]]]]:
    """Name the best methods by every measure, with those within noise of them."""
    for measure in (m for m in study.measures if m.better and m.shown):
        for setting, columns in study.grids[measure.key].items():
            cells = [
                (at.where, ", ".join([best, *at.ties()]), at.mean(best))
                for at in columns.values()
                if (best := at.best()) and len(at.entries) > 1
            ]
            if cells:
                yield f"{measure.name}, {study.place(setting)}", cells
