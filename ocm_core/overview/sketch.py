"""The frontier of an experiment as a drawing small enough for a card."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from ocm_core.compare.recorded import RecordedExperiment
from ocm_core.overview.routes import AS_USUAL, OURS, SOLVER, Line, distance_of, frontier_lines
from ocm_core.schema.experiment import Experiment

WIDTH, HEIGHT = 320, 130
LEFT, TOP, BOTTOM = 34, 8, 16  # what the labels of the axes take


@dataclass(frozen=True)
class SketchedLine:
    name: str
    kind: str  # the CSS class of the line: one for each of the three
    points: tuple[tuple[float, float], ...]

    @property
    def path(self) -> str:
        return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in self.points)


@dataclass(frozen=True)
class Sketch:
    """Both axes are logarithmic; their ends are labelled."""

    metric: str
    lines: tuple[SketchedLine, ...]
    steps: tuple[int, int]
    values: tuple[float, float]


_KINDS = {OURS: "ours", SOLVER: "solver", AS_USUAL: "usual"}


def sketch(found: RecordedExperiment, experiment: Experiment) -> Sketch | None:
    """None where there is nothing to compare: no distance, or at one number of steps only."""
    metric = distance_of(found)
    lines = frontier_lines(found, experiment, metric) if metric else {}
    reached = [one for line in lines.values() for one in line if one.value > 0]
    steps, values = {one.steps for one in reached}, {one.value for one in reached}
    if metric is None or len(steps) < 2 or len(values) < 2:
        return None
    across, up = (min(steps), max(steps)), (min(values), max(values))
    return Sketch(
        metric,
        tuple(
            SketchedLine(name, _KINDS[name], _points(line, across, up))
            for name, line in lines.items()
        ),
        across,
        up,
    )


def _points(
    line: Line, steps: tuple[int, int], values: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    width, height = WIDTH - LEFT - 8, HEIGHT - TOP - BOTTOM
    return tuple(
        (LEFT + width * _share(one.steps, steps), TOP + height * (1 - _share(one.value, values)))
        for one in line
        if one.value > 0
    )


def _share(value: float, ends: tuple[float, float]) -> float:
    low, high = ends
    return log(value / low) / log(high / low)
