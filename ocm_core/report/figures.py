"""Figures of a page: lines over nfe, time or guidance, the frontier, timesteps and training."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ocm_core.report import charts
from ocm_core.report.charts import REFERENCE, Line, LineStyle, method_styles, route_styles, var
from ocm_core.report.document import DataTable, Figure, Plot
from ocm_core.report.folder import Curves, OptimalByMethod
from ocm_core.results.measures import Measure
from ocm_core.results.replicates import Estimate, mean_of
from ocm_core.results.study import USUAL, Frontier, Study, lines
from ocm_core.results.table import Value
from ocm_core.text import listed

NFE, TIME = "network evaluations (nfe)", "timestep t"
FRESH = "fresh data"  # what a perfect sampler would get
_FRESH_STYLE = LineStyle(REFERENCE, "grey", "none", width=1)
_BROUGHT_OUT = 3  # lines of differences; the others are grey until they are pointed at
_EXACT = 1e-5  # of the largest value: less is rounding
_LONGEST = 20  # timesteps of a drawn row: longer ones fill the picture
_FRONTIER = (
    *("measure", "nfe", "guidance", "best of this work", "mean", "best solver", "mean"),
    *("difference", "its standard error"),
)
_FEWEST = 4  # points at the end of a curve, from which a line tells something
_START, _LEVEL = 0.8, 0.02  # where the end of training begins, and a change that is a fall


class _Pane(NamedTuple):
    """A chart before it is drawn."""

    measure: Measure
    place: str
    lines: Mapping[str, Line]
    styles: Mapping[str, LineStyle]
    guidance: float | None = None
    less: str = ""  # what the measure is less, in a chart of differences

    def plot(self, x_name: str, *, several: bool) -> Plot:
        """Draw it; `several` measures stand in one figure."""
        xs = sorted({x for points in self.lines.values() for x, _ in points})
        x = charts.listed_axis(x_name, xs, log=x_name == NFE)
        if x_name == TIME and xs[0] > 0:
            x = charts.decades(TIME, xs[0], xs[-1])
        name, log = f"{self.measure.name}{self.less}", self.measure.log and not self.less
        y = charts.value_axis(name, self.lines, log=log, higher=self.measure.higher)
        if self.less:
            y |= {"zeroline": True, "zerolinecolor": var("soft")}
        both = ", ".join(filter(None, (self.measure.name, self.place)))
        at = {} if self.guidance is None else {"guidance": f"{self.guidance:g}"}
        title = both if several else self.place or both
        return Plot(title, charts.chart(x, y, self.lines, self.styles), at)


def _figure(
    study: Study,
    id: str,
    panes: Sequence[_Pane],
    x_name: str,
    caption: str,
    table: DataTable | None = None,
    brought_out: Sequence[str] = (),
) -> Figure | None:
    """Put panes together: a legend of all lines, a choice of guidance, and the numbers."""
    if not panes:
        return None
    names = [*dict.fromkeys(pane.measure.name for pane in panes)]
    styles = {label: pane.styles[label] for pane in panes for label in pane.lines}
    legend = {m: styles[m] for m in dict.fromkeys([*study.methods, *styles]) if m in styles}
    columns = ("measure", "setting", "line", x_name, "mean", "standard error")
    rows = tuple(
        (pane.measure.name, pane.place, label, x, charts.number(e.mean), charts.number(e.error))
        for pane in panes
        for label, points in pane.lines.items()
        for x, e in points
    )
    label = f"Line charts of {listed(names)} against {x_name}: {', '.join(legend)}."
    caption = f"{caption} {study.small_print(panes[0].measure)}".strip()
    plots = tuple(pane.plot(x_name, several=len(names) > 1) for pane in panes)
    table = table or DataTable(id.replace("-", "_"), columns, rows)
    few = tuple(brought_out)
    return Figure(id, caption, label, plots, table, legend, control="guidance", brought_out=few)


def curves(study: Study, measures: Sequence[Measure], id: str, caption: str = "") -> Figure | None:
    """Draw measures over nfe or time: a pane for each setting, a line for each method."""
    panes: list[_Pane] = []
    exact: dict[str, None] = {}  # lines that are left out, as zero but for rounding
    for measure in measures:
        for place, columns, setting, routes in study.groups(measure.key):
            drawn = _drawn(lines(columns))
            if drawn and all(columns):
                tops = {m: max(e.mean for _, e in p if e.is_finite) for m, p in drawn.items()}
                least = _EXACT * max(tops.values()) if measure.log else -np.inf
                exact |= {label: None for label, top in tops.items() if top < least}
                shown = {m: points for m, points in drawn.items() if tops[m] >= least}
                if setting.sampler:
                    shown |= _fresh(study, measure, [*columns])
                known = route_styles(routes, study.solvers) or method_styles(study.methods)
                styles = known | {FRESH: _FRESH_STYLE}
                panes.append(_Pane(measure, place, shown, styles, setting.guidance))
    x_name = TIME if measures and study.is_over_time(measures[0].key) else NFE
    if not caption and measures:
        names = listed([measure.name for measure in measures])
        caption = f"{names[0].upper()}{names[1:]} against {x_name}. {measures[0].about}"
        if len(measures) == 1 and measures[0].better:
            caption += f" {measures[0].better.capitalize()} is better."
    if exact:
        caption += f" Exact but for rounding, and below an axis: {listed([*exact])}."
    return _figure(study, id, panes, x_name, caption)


def _drawn(lines: Mapping[str, Line]) -> dict[str, Line]:
    """Return the lines with a finite value."""
    return {label: points for label, points in lines.items() if any(e.is_finite for _, e in points)}


def _fresh(study: Study, measure: Measure, xs: Sequence[int]) -> dict[str, Line]:
    """Return the level that fresh data have, where it was measured."""
    floor = study.results.select(measure=f"{measure.key}_floor")
    if not (floor and xs):
        return {}
    level = Estimate(mean_of(row.value for row in floor).mean)
    return {FRESH: [(xs[0], level), (xs[-1], level)]}


def differences(study: Study, measure: Measure) -> Figure | None:
    """Draw how far each method is from OCM's head, in pairs that share their noise."""
    reference = study.family_of(measure.key)["ocm"]
    styles = method_styles(study.methods)
    panes: list[_Pane] = []
    sizes: dict[str, list[float]] = {}
    less = f" less that of {reference}"
    for setting, columns in study.grids[measure.key].items():
        gaps: dict[str, list[tuple[float, Estimate]]] = {}
        for x, at in columns.items():
            for label in at.entries if reference in at.entries else ():
                if label != reference:
                    gaps.setdefault(label, []).append((x, at.gap(label, reference)))
        if drawn := _drawn(gaps):
            place = study.place(setting)
            panes.append(_Pane(measure, place, drawn, styles, setting.guidance, less))
        for label, points in drawn.items():
            sizes.setdefault(label, []).extend(abs(e.mean) for _, e in points if e.is_finite)
    nearest = sorted(sizes, key=lambda label: float(np.mean(sizes[label])))
    caption = (
        f"{measure.name} of each method{less}, in pairs that began with the same noise: "
        f"{'above' if measure.higher else 'below'} zero is better. A number at the edge is the "
        "value of a point beyond it. Point at a grey line to bring it out."
    )
    few = nearest[:_BROUGHT_OUT] if len(nearest) > _BROUGHT_OUT else ()
    id = f"{measure.key.replace('.', '-')}-differences"
    return _figure(study, id, panes, NFE, caption, brought_out=few)


def along_guidance(study: Study, measures: Sequence[Measure]) -> Figure | None:
    """Draw measures against the guidance scale, where three or more were sampled."""
    panes: list[_Pane] = []
    for measure in measures:
        places: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
        for (_, sampler, _, scale), columns in study.grids[measure.key].items():
            for nfe, at in columns.items():
                here = places.setdefault(f"{sampler.upper()}, nfe {nfe}", {})
                for label, cell in at.entries.items():
                    here.setdefault(label, []).append((scale or 1.0, cell.estimate))
        for place, found in places.items():
            long = {m: sorted(p, key=lambda q: q[0]) for m, p in found.items() if len(p) > 2}
            if long:
                panes.append(_Pane(measure, place, long, method_styles(study.methods)))
    return _figure(study, "guidance", panes, "guidance scale", "What guidance trades.")


def frontier_figure(study: Study) -> Figure | None:
    """Draw the best ways to spend nfe, this work and solvers, and what the papers compare."""
    found = study.frontiers
    if not found:
        return None
    first = next(iter(found.values()))
    papers = [f"ddpm, {m}" for m in (study.family_of(first.measure.key)["ocm"], USUAL)]
    along = {place: lines(frontier.columns) for place, frontier in found.items()}
    shown: dict[str, None] = {}
    for place, frontier in found.items():
        shown |= {m: None for m in [*frontier.leaders(), *papers] if m in along[place]}
    styles = route_styles(shown, study.solvers) | {FRESH: _FRESH_STYLE}
    panes = []
    rows: list[tuple[Value, ...]] = []
    for (key, scale), frontier in found.items():
        measure, gaps = frontier.measure, frontier.gaps()
        drawn: dict[str, Line] = {m: p for m in styles if (p := along[key, scale].get(m))}
        drawn |= _fresh(study, measure, [*frontier.columns])
        guided = f"guidance {scale:g}" if study.is_guided and scale else ""
        panes.append(_Pane(measure, guided, drawn, styles, scale))
        for nfe, at in frontier.columns.items():
            sides = frontier.sides[nfe]
            both = [value for best in sides for value in (best, at.mean(best) if best else None)]
            rows.append((measure.name, nfe, scale, *both, *gaps.get(nfe, (None, None))))
    features = study.space_name(first.measure)
    told = verdict(study, first)
    caption = f"{told} Features of {features};" if features else told
    table = DataTable("frontier", _FRONTIER, tuple(rows))
    return _figure(study, "frontier", panes, NFE, caption, table)


def verdict(study: Study, frontier: Frontier) -> str:
    """Say at which nfe which side is ahead."""
    gaps = frontier.gaps()
    if not gaps or not study.is_conclusive:
        return "The best ways to spend network evaluations."
    sides: dict[str, list[str]] = {}
    for nfe, gap in gaps.items():
        ours = gap.mean > 0 if frontier.measure.higher else gap.mean < 0
        ahead = "this work is ahead" if ours else "solvers are ahead"
        sides.setdefault("noise decides" if gap.is_noise else ahead, []).append(str(nfe))
    told = "; ".join(f"{side} at {listed(nfes)}" for side, nfes in sides.items())
    known = next(iter(gaps.values())).has_error
    unknown = "" if known else " (one seed: whether that is noise is not known)"
    return f"By {frontier.measure.name}, {told} network evaluations{unknown}."


def chosen_timesteps(study: Study, timesteps: OptimalByMethod, items: str) -> Figure:
    """Draw which timesteps the optimal rule visits: a row of dots for each nfe."""
    method_of = {key: key.partition("/")[0] for key in timesteps}  # METHOD/DECODER
    shown = [key for label in study.methods for key in timesteps if method_of[key] == label]
    last = max(steps[-1] for label in shown for steps in timesteps[label].values())
    nfe = charts.axis("nfe", rangemode="tozero")
    look = {"xaxis": charts.decades(TIME, 1, last), "yaxis": nfe}
    styles = method_styles(study.methods)
    panes = []
    rows: list[tuple[Value, ...]] = []
    for label in shown:
        few = {k: steps for k, steps in sorted(timesteps[label].items()) if k <= _LONGEST}
        marker = {"symbol": "line-ns-open", "size": 7, "color": styles[method_of[label]].colour}
        places = [(t, k) for k, steps in few.items() for t in steps]
        trace = {"mode": "markers", "meta": label, "marker": marker}
        data = _dots(places, "nfe %{y}: t = %{x}", trace)
        panes.append(Plot(label, {"data": [data], "layout": look}, {"method": label}))
        rows += [(label, k, " ".join(map(str, steps))) for k, steps in few.items()]
    label = f"Scatter charts of optimal timesteps t for each nfe: {', '.join(shown)}."
    what = f"Optimal timesteps, a row of dots for each nfe: those with the lowest bound on {items}"
    caption = f"{what}. They may end below T, where the prior then stands."
    table = DataTable("chosen_timesteps", ("method", "nfe", "timesteps"), tuple(rows))
    return Figure("chosen-timesteps", caption, label, tuple(panes), table, control="method")


def _dots(places: Sequence[tuple[Value, Value]], hover: str, look: charts.Spec) -> charts.Spec:
    """Return a trace of points without bars."""
    xs, ys = [x for x, _ in places], [y for _, y in places]
    return {"type": "scatter", "x": xs, "y": ys, "hovertemplate": f"{hover}<extra></extra>", **look}


def training_curves(study: Study, curves: Curves) -> Figure:
    """Draw smoothed losses without their first steep fall, a small chart for each network."""
    panes, rows = [], []
    styles = method_styles(study.methods)
    quiet = {"nticks": 4, "tickfont": {"size": 10}}
    for (training, network), curve in curves.items():
        colour = styles[network].colour if network in styles else var("ink")
        finite = [loss for _, loss in curve if np.isfinite(loss)]
        settled = finite[len(finite) // 10 :] if len(finite) > 10 else finite
        low, high = min(settled), max(settled)
        margin = 0.08 * (high - low or abs(high) or 1.0)
        trace = {"mode": "lines", "line": {"color": colour, "width": 1.5}}
        data = _dots([(i, charts.number(loss)) for i, loss in curve], "%{x}: %{y:.4g}", trace)
        look = {
            "xaxis": charts.axis("iteration", **quiet),
            "yaxis": charts.axis("loss", **quiet, range=[low - margin, high + margin]),
            "margin": {"l": 46, "r": 6, "t": 4, "b": 36},
        }
        panes.append(Plot(f"{network}, {training}", {"data": [data], "layout": look}))
        few = np.unique(np.linspace(0, len(curve) - 1, 10).round().astype(int))
        rows += [(training, network, *curve[i]) for i in few]
    label = "Line charts of smoothed training losses against iterations, one per network."
    caption = (
        "Smoothed training losses, each with its own scale: the targets differ, so heights do not "
        "compare. Look for a curve that is level at its end. Where a curve begins above its chart, "
        f"that is the first steep fall. {levelled(curves)}"
    )
    table = DataTable("training", ("training", "network", "iteration", "loss"), tuple(rows))
    plots = tuple(panes)
    return Figure("training-curves", caption, label, plots, table, arrangement="strips")


def levelled(curves: Curves) -> str:
    """Say which networks still learn, by a line through the end of training, beside its mean."""
    changes: dict[str, float] = {}  # of networks of one name, the last
    for (_, name), curve in curves.items():
        values = np.array([loss for _, loss in curve])[int(_START * len(curve)) :]
        if len(values) < _FEWEST:
            return "The curves have too few points to tell whether training has levelled off."
        slope = np.polyfit(np.arange(len(values)), values, 1)[0]
        changes[name] = slope * (len(values) - 1) / max(abs(values.mean()), 1e-12)
    falling = [f"{name} ({change:+.0%})" for name, change in changes.items() if change < -_LEVEL]
    share = f"the last {1 - _START:.0%} of its iterations"
    if not falling:
        return f"No loss fell by more than {_LEVEL:.0%} over {share}: all have levelled off."
    return f"Over {share} a loss still fell by more than {_LEVEL:.0%} of itself: {listed(falling)}."
