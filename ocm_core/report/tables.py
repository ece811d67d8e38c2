"""Tables of a page: results as papers print them, the first small one, costs and the glossary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from ocm_core.report.document import DataTable, Glossary, GlossaryEntry, Value
from ocm_core.report.result_table import Mark, Result, ResultGroup, ResultRow, ResultTable
from ocm_core.results.measures import Measure
from ocm_core.results.replicates import Comparison
from ocm_core.results.study import TABLE_NFE, USUAL, Frontier, Route, Setting, Study, nearest

MARKS = "Best in bold, second best underlined, ≈ what is within noise of the best."
BEST, SOLVER = "best of this work", "best solver"
BOUND = "bits_per_dim"
_RANKS: tuple[Mark, ...] = ("best", "second")
PublishedMeans = Mapping[str, Mapping[int, float]]  # by method and nfe


def ranked_group(
    title: str,
    columns: Sequence[Comparison],
    notes: Mapping[tuple[str, int], str] | None = None,
    published: Sequence[Mapping[str, float]] = (),
) -> ResultGroup:
    """Rank the entries of each column; the paper's own numbers stand under theirs."""
    orders = [_ranks(column) for column in columns]
    ties = [column.ties() if len(column.ranked()) > 1 else [] for column in columns]
    rows: list[ResultRow] = []
    for label in dict.fromkeys(label for column in columns for label in column.entries):
        cells = []
        for i, column in enumerate(columns):
            cell = column.entries.get(label)
            cells.append(
                Result(
                    mean=cell.estimate.mean if cell else None,
                    error=cell.estimate.error if cell else None,
                    rank=orders[i].get(label, ""),
                    tied=label in ties[i],
                    note=(notes or {}).get((label, i), ""),
                )
            )
        rows.append(ResultRow(label, tuple(cells)))
        printed = [column.get(label) for column in published]
        if any(value is not None for value in printed):
            cells = [Result(value) for value in printed]
            rows.append(ResultRow(f"{label} in the paper", tuple(cells), published=True))
    return ResultGroup(title, tuple(rows))


def _ranks(column: Comparison) -> dict[str, Mark]:
    """Mark the best and the second best; equals share a place, and alone there is none."""
    order = column.ranked()
    levels = sorted({column.mean(label) for label in order}, reverse=column.higher)
    places = {label: levels.index(column.mean(label)) for label in order if len(order) > 1}
    return {label: _RANKS[place] for label, place in places.items() if place < len(_RANKS)}


def measure_table(
    study: Study, measure: Measure, published: Mapping[Setting, PublishedMeans] | None = None
) -> ResultTable:
    """Print a measure: a group for each setting with several methods, and one of the others."""
    found = list(study.groups(measure.key))
    xs = sorted({x for group in found for x in group.columns})
    groups = []
    for place, columns, setting, _ in found:
        paper = (published or {}).get(setting, {})
        printed = [{m: v[x] for m, v in paper.items() if x in v} for x in xs]
        given = [columns.get(x, Comparison("", higher=measure.higher)) for x in xs]
        groups.append(ranked_group(place, given, published=printed))
    unit = "t" if study.is_over_time(measure.key) else "nfe"
    better = f" ({measure.better} is better)" if measure.better else ""
    caption = f"{measure.name}{better}. {study.small_print(measure)} {MARKS}"
    columns_named = tuple(f"{unit} {x}" if x else measure.name for x in xs)
    name = f"{measure.key}_by_{unit}"
    return ResultTable(name, caption, "method", columns_named, tuple(groups))


def headline(study: Study) -> ResultTable | None:
    """Print the best of this work, the published head, the usual variance and the best solver."""
    nfes = _headline_nfe(study)
    groups = [
        *(
            _frontier_group(study, f, nfes)
            for (_, s), f in study.frontiers.items()
            if _least(study, s)
        ),
        *_bound_groups(study, nfes),
    ]
    shown = tuple(group for group in groups if group.rows)
    columns = tuple(f"nfe {nfe}" for nfe in nfes)
    return ResultTable("headline", MARKS, "network evaluations", columns, shown) if shown else None


def _least(study: Study, scale: float | None) -> bool:
    return scale == study.guidance


def _headline_nfe(study: Study) -> list[int]:
    frontier = study.frontier
    grid = study.grids.get(BOUND, {})
    present = [*frontier.columns] if frontier else [x for c in grid.values() for x in c]
    return nearest(TABLE_NFE, present)


def _frontier_group(study: Study, frontier: Frontier, nfes: Sequence[int]) -> ResultGroup:
    ocm = study.family_of(frontier.measure.key)["ocm"]
    fixed = [Route("ddpm", m) for m in (ocm, "exact_diag", USUAL)]
    columns: list[Comparison] = []
    notes: dict[tuple[str, int], str] = {}
    for i, nfe in enumerate(nfes):
        at = frontier.columns.get(nfe, Comparison("", higher=frontier.measure.higher))
        best = frontier.best(nfe, solver=False) if at.entries else None
        solver = frontier.best(nfe, solver=True) if at.entries else None
        chosen = {BEST: best, **{r.label: r for r in fixed}, SOLVER: solver}
        entries = {
            name: at.entries[route.label]
            for name, route in chosen.items()
            if route and route.label in at.entries
        }
        notes |= {(n, i): r.label for n, r in ((BEST, best), (SOLVER, solver)) if r}
        columns.append(Comparison("", entries, at.higher))
    place = f", guidance {study.guidance:g}" if study.is_guided and study.guidance else ""
    return ranked_group(f"{frontier.measure.name}{frontier.measure.arrow}{place}", columns, notes)


def _bound_groups(study: Study, nfes: Sequence[int]) -> Iterator[ResultGroup]:
    """Print the bound for each rule of timesteps, with the last score."""
    ocm = study.family_of(BOUND)["ocm"]
    for setting, by_nfe in study.grids.get(BOUND, {}).items():
        if setting.score not in ("", study.score):
            continue
        columns: list[Comparison] = []
        notes: dict[tuple[str, int], str] = {}
        for i, nfe in enumerate(nfes):
            at = by_nfe.get(nfe, Comparison(""))
            best = at.best()
            chosen = {BEST: best, ocm: ocm, USUAL: USUAL}
            entries = {n: at.entries[m] for n, m in chosen.items() if m and m in at.entries}
            notes |= {(BEST, i): best} if best else {}
            columns.append(Comparison("", entries))
        name = study.registry[BOUND]
        yield ranked_group(
            f"{name.name}{name.arrow}, {setting.timesteps} timesteps", columns, notes
        )


def clamped(study: Study) -> DataTable | None:
    """Print the share of variances that were out of range, in percent; None if all were fine."""
    grid = study.grids.get("clamped", {})
    nfes = sorted({nfe for columns in grid.values() for nfe in columns})
    rows: list[tuple[Value, ...]] = []
    for setting, columns in grid.items():
        for label in dict.fromkeys(m for at in columns.values() for m in at.entries):
            shares = [100 * columns[k].mean(label) if k in columns else None for k in nfes]
            if any(share and share > 0 for share in shares):
                rounded = [None if s is None else float(f"{s:.2g}") for s in shares]
                rows.append((study.place(setting), label, *rounded))
    names = tuple(f"nfe {nfe}" for nfe in nfes)
    return DataTable("clamped", ("setting", "method", *names), tuple(rows)) if rows else None


def methods(study: Study, notes: Mapping[str, Any]) -> DataTable:
    """Print what each method adds: parameters, passes and operations."""
    from ocm_core.covariance import available, build

    parameters: Mapping[str, int] = notes.get("head_parameters", {})
    operations = {row.method: row.value for row in study.results.select(measure="operations")}
    dimension = prod(notes.get("shape", [])) or 0
    rows: list[tuple[Value, ...]] = []
    for label, method in study.methods.items():
        work = ""
        if method.kind in available():
            work = build(method.kind, label, **method.options).extra_work(dimension)
        rows.append(
            (label, parameters.get(label), work, *[operations.get(label)] * bool(operations))
        )
    columns = ("method", "parameters", "extra work per step", *["operations"] * bool(operations))
    return DataTable("methods", columns, tuple(rows))


INTRODUCTION = (
    "A reverse step from t to s draws from a Gaussian whose mean comes from the score. The methods "
    "differ in its covariance Σ only, most of them by c alone: Σ = β̃ + a² (bₜ/ᾱₜ) c, with "
    "bₜ = 1 - ᾱₜ, β̃ = (1 - ᾱₜ/ᾱₛ) bₛ/bₜ and a = √ᾱₛ (1 - ᾱₜ/ᾱₛ)/bₜ. J is the Jacobian of the "
    "predicted noise ε̂ in xₜ, and v are random signs."
)
_BASELINES = {
    "gaussian": "the variance of a Gaussian",
    "moments": "the table of analytic",
    "target": "the mean of its target",
}
_LINKS = {"positive": ", and positive", "tapered": ", positive, tapered at small t"}
_LINKED = {
    "identity": "c = c̄ₜ (1 + r(xₜ))",
    "positive": "c = c̄ₜ softplus(r(xₜ) + log(e - 1))",
    "tapered": "c = c̄ₜ softplus((1 - c̄ₜ) r(xₜ) + log(e - 1))",
}
_KERNELS = {
    "ddpm": ("DDPM's reverse steps", "xₛ = a x̂₀ + √(ᾱₜ/ᾱₛ) (bₛ/bₜ) xₜ + √Σ z"),
    "ddim": ("DDIM's reverse steps", "xₛ = √ᾱₛ x̂₀ + √(bₛ - η²β̃) ε̂ + √Σ z"),
}


def glossary(study: Study) -> Glossary:
    """Explain every label of the page."""
    samplers: Mapping[str, Mapping[str, Any]] = study.param("sample.samplers", {})
    shown = [name for name in dict.fromkeys(study.recipe_names.values())]
    entries = [
        *(_explained(study, label) for label in study.methods),
        *(_sampler(k, samplers[k]) for k in shown if k not in study.methods),
    ]
    return Glossary(tuple(entries))


def _explained(study: Study, label: str) -> GlossaryEntry:
    method = study.methods[label]
    text, equation = method.known.profile.about, method.known.profile.equation
    if method.is_relative and method.family:  # in what it differs from the papers' heads
        baseline, link, _ = method.family
        name = _BASELINES.get(baseline, baseline)
        text += f"; relative to {name}{_LINKS.get(link, '')}"
        equation = f"{_LINKED.get(link, '')}, c̄ₜ {name}"
    probes = method.options.get("probes", 1)
    told = method.kind == "rademacher" or probes != 1
    return GlossaryEntry(label, f"{text} (M = {probes})" if told else text, equation)


def _sampler(label: str, sampler: Mapping[str, Any]) -> GlossaryEntry:
    kind = sampler["kind"]
    if kind == "diffusers":
        options = "".join(f", {key} {value}" for key, value in sampler.get("options", {}).items())
        return GlossaryEntry(label, f"{sampler['scheduler']} of diffusers{options}")
    if kind == "preset":
        return GlossaryEntry(label, f"the preset {sampler['name']}")
    text, equation = _KERNELS.get(kind, (kind, ""))
    order = f" of order {sampler['order']}" if sampler.get("order", 1) != 1 else ""
    rule = sampler.get("timesteps", {})
    along = f" along {rule.get('kind', 'even')} timesteps" if isinstance(rule, Mapping) else ""
    return GlossaryEntry(label, f"{text}{order}{along}", equation)
