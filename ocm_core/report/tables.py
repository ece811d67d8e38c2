"""Tables of a page: results as papers print them, the first small one, and costs."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ocm_core.report.document import DataTable, Mark, Result, ResultGroup, ResultRow, ResultTable
from ocm_core.results.measures import Measure
from ocm_core.results.replicates import Comparison
from ocm_core.results.study import TABLE_NFE, USUAL, Columns, Setting, Study, nearest
from ocm_core.results.table import Value

MARKS = "Best in bold, second best underlined, ≈ what is within noise of the best."
BEST, SOLVER = "best of this work", "best solver"
BOUND = "bits_per_dim"
_RANKS: tuple[Mark, ...] = ("best", "second")
PublishedMeans = Mapping[str, Mapping[int, float]]  # by method and nfe


def _ranked_group(
    title: str,
    columns: Sequence[Comparison],
    notes: Mapping[tuple[str, int], str] | None = None,
    published: Sequence[Mapping[str, float]] = (),
) -> ResultGroup:
    """Rank each column: equals share a place, and alone there is none; the paper's stand below."""
    ranks: list[dict[float, Mark]] = []
    for column in columns:
        means = [column.mean(label) for label in column.ranked()]
        levels = sorted({*means}, reverse=column.higher) if len(means) > 1 else []
        ranks.append(dict(zip(levels, _RANKS, strict=False)))
    ties = [column.ties() if len(column.ranked()) > 1 else [] for column in columns]
    rows: list[ResultRow] = []
    for label in dict.fromkeys(label for column in columns for label in column.entries):
        cells = []
        for i, column in enumerate(columns):
            cells.append(Result(note=(notes or {}).get((label, i), "")))
            if label in column.entries:
                mean, error = column.entries[label].estimate
                rank, tied = ranks[i].get(mean, ""), label in ties[i]
                cells[i] = cells[i]._replace(mean=mean, error=error, rank=rank, tied=tied)
        rows.append(ResultRow(label, tuple(cells)))
        printed = tuple(Result(column.get(label)) for column in published)
        if any(cell.mean is not None for cell in printed):
            rows.append(ResultRow(f"{label} in the paper", printed, published=True))
    return ResultGroup(title, tuple(rows))


def measure_table(
    study: Study, measure: Measure, published: Mapping[Setting, PublishedMeans] | None = None
) -> ResultTable:
    """Print a measure: a group for each setting with several methods, and one of the others."""
    found = list(study.groups(measure.key))
    xs = sorted({x for _, columns, *_ in found for x in columns})
    groups = []
    for place, columns, setting, _ in found:
        paper = (published or {}).get(setting, {})
        printed = [{m: v[x] for m, v in paper.items() if x in v} for x in xs]
        given = [columns.get(x, Comparison("", higher=measure.higher)) for x in xs]
        groups.append(_ranked_group(place, given, published=printed))
    unit = "t" if study.is_over_time(measure.key) else "nfe"
    better = f" ({measure.better} is better)" if measure.better else ""
    caption = f"{measure.name}{better}. {study.small_print(measure)} {MARKS}"
    columns_named = tuple(f"{unit} {x}" if x else measure.name for x in xs)
    name = f"{measure.key}_by_{unit}"
    return ResultTable(name, caption, "method", columns_named, tuple(groups))


def headline(study: Study) -> ResultTable | None:
    """Print the best of this work, the published head, the usual variance and the best solver."""
    bounds = study.grids.get(BOUND, {})
    present = study.frontier.columns if study.frontier else [x for c in bounds.values() for x in c]
    nfes = nearest(TABLE_NFE, present)
    groups = []
    guided = f", guidance {study.guidance:g}" if study.is_guided and study.guidance else ""
    for (key, scale), frontier in study.frontiers.items():
        if scale == study.guidance:
            title = f"{frontier.measure.name}{frontier.measure.arrow}{guided}"
            ocm, structured = study.family_of(key)["ocm"], study.structured(study.methods)
            labels = [f"ddpm, {m}" for m in (ocm, "exact_diag", USUAL, *structured)]
            groups.append(_headline_group(study, title, frontier.columns, nfes, labels))
    for setting, columns in bounds.items():
        if setting.score in ("", study.score):
            measure = study.registry[BOUND]
            title = f"{measure.name}{measure.arrow}, {setting.timesteps} timesteps"
            labels = [study.family_of(BOUND)["ocm"], USUAL, *study.structured(study.methods)]
            groups.append(_headline_group(study, title, columns, nfes, labels))
    shown = tuple(group for group in groups if group.rows)
    heads = tuple(f"nfe {nfe}" for nfe in nfes)
    return ResultTable("headline", MARKS, "network evaluations", heads, shown) if shown else None


def _headline_group(
    study: Study, title: str, by_nfe: Columns, nfes: Sequence[int], labels: Sequence[str]
) -> ResultGroup:
    """Compare the best of both sides, which notes name, with a few that are always shown."""
    columns: list[Comparison] = []
    notes: dict[tuple[str, int], str] = {}
    for i, nfe in enumerate(nfes):
        at = by_nfe.get(nfe, Comparison(""))
        ours, solver = study.sides(at)
        chosen = {BEST: ours, **{label: label for label in labels}, SOLVER: solver}
        entries = {n: at.entries[m] for n, m in chosen.items() if m and m in at.entries}
        notes |= {(name, i): label for name, label in ((BEST, ours), (SOLVER, solver)) if label}
        columns.append(Comparison("", entries, at.higher))
    return _ranked_group(title, columns, notes)


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
        known = method.kind in available()
        work = build(method.kind, label, **method.options).extra_work(dimension) if known else ""
        rows.append((label, parameters.get(label), work, operations.get(label)))
    columns = ("method", "parameters", "extra work per step", "operations")
    shown = 4 if operations else 3
    return DataTable("methods", columns[:shown], tuple(row[:shown] for row in rows))
