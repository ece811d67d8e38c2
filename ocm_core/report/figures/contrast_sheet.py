"""The first thing to see: samples from the same noise, ways to sample in rows, steps in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ocm_core.report.figures.densities import PlanePoints
from ocm_core.report.figures.method_styles import MethodStyles
from ocm_core.report.figures.sample_panels import PlaneSamples, panel
from ocm_core.report.figures.sample_sheets import ImageSamples
from ocm_core.report.page import pictures
from ocm_core.report.page.document import DataTable, Figure, Panel, Picture, PictureMatrix, Value
from ocm_core.report.page.pictures import Pixels

ID = "sheet"
DATA = "test set"
_ROWS, _COLUMNS = 2, 6  # images of a cell, at most: fewer columns would make it too high
_POINTS = 300  # of a panel
BUDGET = 700_000  # bytes of pixels in all: enough for photographs of 32×32

RouteNames = Mapping[str, tuple[str, str]]  # by the name of a row: sampler and method


def image_sheet(
    samples: ImageSamples, routes: RouteNames, steps: Sequence[int], test: Pixels | None, note: str
) -> Figure | None:
    """None where no route has samples with any of the steps."""
    found = _present(samples, routes, steps)
    if not found:
        return None
    shape = next(iter(samples.values())).shape
    wanted = (min(_ROWS * _COLUMNS, shape[0]), *shape[1:])
    count, reduction = pictures.fit(wanted, (len(found) + 1) * len(steps), BUDGET, fewest=4)
    count = min(count, max(1, count // _COLUMNS) * _COLUMNS)  # no empty place

    def cell(name: str, images: Pixels) -> Picture:
        strip = pictures.sheet(pictures.shrink(images[:count], reduction), _COLUMNS)
        return Picture("", name, pictures.uri(strip), strip.shape[1], strip.shape[0])

    rows = [
        (name, tuple(x if x is None else cell(f"{name}, {k} steps", x) for k, x in by_k.items()))
        for name, by_k in found.items()
    ]
    if test is not None:
        parts = [test[i * count : (i + 1) * count] for i in range(len(steps))]
        rows.append((DATA, tuple(cell(DATA, x) if len(x) == count else None for x in parts)))
    means = [
        (name, k, float(x.mean()), float(x.std()))
        for name, by_k in found.items()
        for k, x in by_k.items()
        if x is not None
    ]
    columns = ("route", "steps", "mean grey level", "standard deviation of grey levels")
    what = f"The first {count} samples of the first seed; the same place, the same noise.{note}"
    return _figure(what, steps, rows, DataTable("sheet", columns, tuple(means)))


def plane_sheet(
    samples: PlaneSamples,
    sampler: str,
    labels: Sequence[str],
    steps: Sequence[int],
    reach: float,
    styles: MethodStyles,
    test: PlanePoints,
) -> Figure | None:
    """Points in the plane, of one sampler."""
    by_steps = {k: samples.get((sampler, k), {}) for k in steps}
    known = [label for label in labels if any(label in by_steps[k] for k in steps)]
    if not known:
        return None

    def cell(label: str, k: int, points: PlanePoints | None) -> Panel | None:
        return None if points is None else panel(f"K = {k}", points, reach, styles[label].hue)

    def shown(label: str, k: int) -> PlanePoints | None:
        points = by_steps[k].get(label)
        return None if points is None else points[:_POINTS]

    data = panel(DATA, test[:_POINTS], reach, "ink")
    rows: list[tuple[str, tuple[Picture | Panel | None, ...]]] = [
        (label, tuple(cell(label, k, shown(label, k)) for k in steps)) for label in known
    ]
    rows.append((DATA, (data,)))
    drawn = [(label, k, shown(label, k)) for label in known for k in steps]
    counts = [(label, k, _inside(x, reach)) for label, k, x in drawn if x is not None]
    table = DataTable("sheet", ("method", "steps", "points inside the frame"), tuple(counts))
    what = f"{sampler.upper()}: the first {_POINTS} points of the first seed, from the same noise."
    return _figure(what, steps, rows, table)


def _figure(
    what: str,
    steps: Sequence[int],
    rows: Sequence[tuple[str, tuple[Picture | Panel | None, ...]]],
    table: DataTable,
) -> Figure:
    columns = tuple(f"{k} steps" for k in steps)
    return Figure(
        id=ID,
        label=f"Samples, ways to sample in rows ({', '.join(name for name, _ in rows)}) and "
        f"numbers of steps in columns ({', '.join(map(str, steps))}).",
        caption=what,
        panes=(PictureMatrix("samples by way and steps", columns, tuple(rows)),),
        arrangement="alone",
        table=table,
    )


def _present(
    samples: ImageSamples, routes: RouteNames, steps: Sequence[int]
) -> dict[str, dict[int, Pixels | None]]:
    found = {name: {k: samples.get((*route, k)) for k in steps} for name, route in routes.items()}
    return {n: by_k for n, by_k in found.items() if any(x is not None for x in by_k.values())}


def _inside(points: PlanePoints, reach: float) -> Value:
    return int((np.abs(points) <= reach).all(1).sum())
