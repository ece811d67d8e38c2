"""Which timesteps the optimal chains visit: a picture of K against t for each method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ocm_core.report.figures import charts
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import Control, DataTable, Figure, Plot, Value
from ocm_core.report.page.style import LineStyle

OptimalTimesteps = Mapping[str, Mapping[int, tuple[int, ...]]]  # by method, and by K
LONGEST = 20  # steps of a chain that is drawn: longer ones fill the picture


def chosen_timesteps(chains: OptimalTimesteps, styles: MethodStyles, items: str) -> Figure:
    shown = [label for label in styles if chains.get(label)]
    last = max(chain[-1] for label in shown for chain in chains[label].values())
    return Figure(
        id="chosen-timesteps",
        label="Scatter charts of the timesteps t that the optimal chain of each number of steps K "
        f"visits, one per method: {', '.join(shown)}.",
        caption="The timesteps of optimal chains, a row of dots for each K: those that make the "
        f"bound on {items} least. A chain may end below T, where its prior then "
        "stands.",
        panes=tuple(_pane(label, chains[label], styles[label], last) for label in shown),
        controls=(Control("method", "Method", tuple(shown), "one"),),
        table=DataTable("chosen_timesteps", ("method", "steps", "timesteps"), tuple(_rows(chains))),
    )


def _pane(label: str, chains: Mapping[int, tuple[int, ...]], style: LineStyle, last: int) -> Plot:
    drawn = [(t, k) for k, chain in sorted(chains.items()) if k <= LONGEST for t in chain]
    figure = charts.chart(
        charts.decades("timestep t", 1, last), charts.axis("number of steps K", rangemode="tozero")
    )
    figure.add_scatter(
        x=[t for t, _ in drawn],
        y=[k for _, k in drawn],
        meta=label,
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 7, "color": style.colour},
        hovertemplate="K = %{y}: t = %{x}<extra></extra>",
    )
    return Plot(label, charts.plain(figure), {"method": label})


def _rows(chains: OptimalTimesteps) -> Iterator[tuple[Value, ...]]:
    for label, found in chains.items():
        for length, chain in sorted(found.items()):
            if length <= LONGEST:
                yield label, length, " ".join(map(str, chain))
