"""Scatter plots of sampled points beside the data, all from the same starting noise, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ocm_core.report.figures.densities import PlanePoints
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.page.document import BOX, Control, DataTable, Figure, Panel, Panels

PlaneSamples = Mapping[tuple[str, int], Mapping[str, PlanePoints]]  # (sampler, K) -> by method

SHOWN_KINDS = (
    *("beta", "beta_tilde", "delta", "analytic"),
    *("npr", "sn", "ocm", "exact_diag", "exact_full"),
)
DATA = "test set"


def sample_panels(
    samples: PlaneSamples, test: PlanePoints, reach: float, styles: MethodStyles, score: str
) -> Figure:
    panes, rows = [], []
    for (sampler, steps), methods in samples.items():
        drawn = {label: points for label, points in methods.items() if label in styles}
        count = len(next(iter(drawn.values())))
        panels = [panel(DATA, test[:count], reach, "ink")]
        panels += [panel(label, x, reach, styles[label].hue) for label, x in drawn.items()]
        title = f"{sampler.upper()}, K = {steps}"
        panes.append(Panels(title, tuple(panels), {"shown": title}))
        rows += [(sampler, steps, label, *_moments(x, reach)) for label, x in drawn.items()]
    shown = list(dict.fromkeys(label for methods in samples.values() for label in methods))
    return Figure(
        id="samples",
        label=f"Scatter plots of samples beside the test set, for {', '.join(shown)}.",
        caption=f"Samples with the {score} score beside as many points of the test set. With a "
        "sampler and a K, every method starts from the same noise (the first seed). Points outside "
        "the frame are counted under their panel.",
        panes=tuple(panes),
        controls=(Control("shown", "Shown", tuple(pane.title for pane in panes), "one"),),
        arrangement="alone",
        table=DataTable("samples", ("sampler", "steps", "method", *_MOMENTS), tuple(rows)),
    )


_MOMENTS = ("mean x", "mean y", "standard deviation x", "standard deviation y", "outside the frame")


def _moments(points: PlanePoints, reach: float) -> tuple[float | int, ...]:
    finite = points[np.isfinite(points).all(1)].astype(np.float64)
    means, spreads = finite.mean(0), finite.std(0)
    return (*map(float, means), *map(float, spreads), _outside(points, reach))


def _outside(points: PlanePoints, reach: float) -> int:
    """Points that the frame does not show, those that are no numbers among them."""
    return int((~(np.abs(points) <= reach).all(1)).sum())


def panel(title: str, points: PlanePoints, reach: float, hue: str) -> Panel:
    outside = _outside(points, reach)
    inside = points[(np.abs(points) <= reach).all(1)]
    places = np.rint((inside * [1, -1] / reach + 1) * (BOX / 2)).astype(int)
    return Panel(title, f"{outside} outside" if outside else "", _dots(places.tolist()), hue)


def _dots(places: Sequence[Sequence[int]]) -> str:
    """Strokes of no length: with round caps they are dots, at a tenth of the bytes of circles."""
    return "".join(f"M{x} {y}h0" for x, y in places)
