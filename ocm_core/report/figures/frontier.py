"""The frontier as a picture: quality and recall against network evaluations, ours and rivals'."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import xarray as xr

from ocm_core.report.figures import charts
from ocm_core.report.page.document import Control, DataTable, Figure, Plot, Value
from ocm_core.report.page.style import OURS, RIVALS, LineStyle
from ocm_core.report.statistics import estimates
from ocm_core.report.statistics.frontier import Duel, Frontier, Route
from ocm_core.report.statistics.image_results import ImageResults, SampleMeasure
from ocm_core.report.statistics.selections import LIKELIHOOD_SAMPLER
from ocm_core.text import listed

_OURS = (
    LineStyle(OURS, "vermillion", "circle", width=3.0),
    LineStyle(OURS, "blue", "square", width=2.4),
    LineStyle(OURS, "green", "diamond", width=2.4),
    LineStyle(OURS, "purple", "triangle-up", "dash"),
    LineStyle(OURS, "orange", "triangle-down", "dashdot"),
    LineStyle(OURS, "sky", "star", "longdash"),
    LineStyle(OURS, "ink", "x", "dot"),
    LineStyle(OURS, "ink", "square-open", "dash"),
    LineStyle(OURS, "vermillion", "diamond-open", "dot"),
    LineStyle(OURS, "blue", "circle-open", "dashdot"),
)
_RIVALS = tuple(
    LineStyle(RIVALS, "grey", marker, dash)
    for marker, dash in (
        ("x", "solid"),
        ("cross", "dash"),
        ("diamond-open", "dot"),
        ("square-open", "dashdot"),
        ("circle-open", "longdash"),
    )
)
KEYS = ("fid", "recall")


def frontier_figure(results: ImageResults, rivals: frozenset[str]) -> Figure | None:
    """Of ours and of the solvers, if there are any. None where nothing was sampled."""
    found = {
        (key, float(scale)): Frontier.of(results, key, float(scale), rivals)
        for key in KEYS
        if key in results.measures
        for scale in results.dataset["guidance"].values
    }
    found = {place: frontier for place, frontier in found.items() if frontier.leaders()}
    if not found:
        return None
    styles = route_styles(_drawn(results, found))
    scales = tuple(dict.fromkeys(f"{scale:g}" for _, scale in found))
    return Figure(
        id="frontier",
        label="Line charts of "
        + " and ".join(dict.fromkeys(results.measures[key].name for key, _ in found))
        + f" against network evaluations: {', '.join(route.label for route in styles)}.",
        caption=f"{verdict(next(iter(found.values())), results)} {results.small_print}",
        panes=tuple(
            _pane(results, key, scale, frontier, styles) for (key, scale), frontier in found.items()
        ),
        legend={route.label: style for route, style in styles.items()},
        controls=(Control("guidance", "Guidance", scales, "one"),),
        table=_table(results, found),
    )


def _drawn(results: ImageResults, found: Mapping[tuple[str, float], Frontier]) -> Iterator[Route]:
    """The best of each side at some budget by either measure, and what the papers compare."""
    for frontier in found.values():
        yield from frontier.leaders()
    papers = (results.heads("fid").label("ocm"), "beta_tilde")
    known = {route for frontier in found.values() for route in frontier.routes}
    yield from (r for m in papers if (r := Route(LIKELIHOOD_SAMPLER, m, False)) in known)


def verdict(frontier: Frontier, results: ImageResults) -> str:
    """At which budgets which side is ahead, in a sentence; by one measure."""
    duels = list(frontier.duels())
    if not duels:
        return "The best ways to spend a budget of network evaluations."
    sign = -1.0 if frontier.higher else 1.0
    ahead: dict[str, list[str]] = {}
    for duel in duels:
        gap = sign * duel.gap.mean
        side = _NOISE if duel.gap.is_noise else (_AHEAD if gap < 0 else _BEHIND)
        ahead.setdefault(side, []).append(str(duel.evaluations))
    told = [f"{side} at {listed(budgets)}" for side, budgets in ahead.items()]
    unknown = "" if duels[0].gap.has_error else " (one seed: whether that is noise is not known)"
    return f"By {results.distance}, {'; '.join(told)} network evaluations{unknown}."


_AHEAD, _BEHIND, _NOISE = "ours is ahead", "the solvers of diffusers are ahead", "noise decides"


def route_styles(routes: Iterable[Route]) -> dict[Route, LineStyle]:
    """Ours in colours, rivals in grey; markers and dashes tell those of one colour apart."""
    known = sorted(dict.fromkeys(routes), key=lambda route: route.is_rival)
    ours = [route for route in known if not route.is_rival]
    theirs = [route for route in known if route.is_rival]
    return {
        **{route: _OURS[i % len(_OURS)] for i, route in enumerate(ours)},
        **{route: _RIVALS[i % len(_RIVALS)] for i, route in enumerate(theirs)},
    }


def _pane(
    results: ImageResults,
    key: str,
    scale: float,
    frontier: Frontier,
    styles: Mapping[Route, LineStyle],
) -> Plot:
    measure = results.measures[key]
    lines = {route: frontier.of_route(route) for route in styles if route in frontier.routes}
    shown = xr.concat(lines.values(), "route", coords="minimal", join="outer")
    budgets = shown["steps"].values.tolist()
    means, errors = estimates.mean(shown), estimates.standard_error(shown)
    figure = charts.chart(
        charts.listed_axis("network evaluations", budgets, log=True),
        charts.value_axis(measure.name, means, errors, log=measure.log, higher=measure.higher),
    )
    for route, values in lines.items():
        spread = estimates.standard_error(values)
        charts.add_line(figure, route.label, styles[route], estimates.mean(values), spread)
    guided = f", guidance {scale:g}" if results.guided else ""
    better = "↑" if measure.higher else "↓"
    title = f"{measure.name[0].upper()}{measure.name[1:]} {better}{guided}"
    return Plot(title, charts.bounded(figure), {"guidance": f"{scale:g}"})


def _table(results: ImageResults, found: Mapping[tuple[str, float], Frontier]) -> DataTable:
    rows = [
        _row(results.measures[key], scale, frontier, k, duels.get(k), guided=results.guided)
        for (key, scale), frontier in found.items()
        for duels in [{duel.evaluations: duel for duel in frontier.duels()}]
        for k in frontier.values["steps"].values.tolist()
    ]
    columns = (
        *("measure", "evaluations", *["guidance"] * results.guided),
        *("best of ours", "mean", "best solver", "mean", "difference", "its standard error"),
    )
    return DataTable("frontier", columns, tuple(rows))


def _row(
    measure: SampleMeasure,
    scale: float,
    frontier: Frontier,
    k: int,
    duel: Duel | None,
    *,
    guided: bool,
) -> tuple[Value, ...]:
    ours, rival = frontier.best(k, rival=False), frontier.best(k, rival=True)
    return (
        *(measure.name, int(k), *[scale] * guided),
        *((ours.label, frontier.mean(ours, k)) if ours else (None, None)),
        *((rival.label, frontier.mean(rival, k)) if rival else (None, None)),
        *((duel.gap.mean, duel.gap.error) if duel else (None, None)),
    )
