"""The three numbers of a card: how good ten steps are, and what the usual variance gives there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ocm_core.compare.recorded import RecordedExperiment
from ocm_core.overview.routes import OURS, USUAL, Reached, distance_of, frontier_lines, reached_by
from ocm_core.schema.experiment import Experiment

BUDGET, SHORT = 10, 5  # steps, or the nearest that was sampled
COUNT = 3


@dataclass(frozen=True)
class HeadlineNumber:
    metric: str
    steps: int
    value: float
    route: str
    usual: float | None  # of `USUAL` with DDPM, at the same number of steps


def headlines(found: RecordedExperiment, experiment: Experiment) -> tuple[HeadlineNumber, ...]:
    return tuple(islice(_candidates(found, experiment), COUNT))


def _candidates(found: RecordedExperiment, experiment: Experiment) -> Iterator[HeadlineNumber]:
    """The best distance of ours and the recall of the same route, bits; then what else there is."""
    metric = distance_of(found)
    ours = frontier_lines(found, experiment, metric).get(OURS, ()) if metric else ()
    best = _best(ours, BUDGET)
    if metric and best:
        yield _number(found, metric, best)
        yield from _of_same_route(found, "recall", best)
    if bits := _best(reached_by(found, "nll_bpd"), BUDGET):
        yield _number(found, "nll_bpd", bits)
    if metric != "mmd_true_score" and (true := _best(reached_by(found, "mmd_true_score"), BUDGET)):
        yield _number(found, "mmd_true_score", true)
    if best:
        yield from _of_same_route(found, "precision", best)
    if metric and best and (short := _best(ours, SHORT)) and short != best:
        yield _number(found, metric, short)


def _best(side: Sequence[Reached], budget: int) -> Reached | None:
    """The lowest at the number of steps that is nearest to the budget."""
    return min(side, key=lambda one: (abs(one.steps - budget), one.steps, one.value), default=None)


def _of_same_route(
    found: RecordedExperiment, metric: str, best: Reached
) -> Iterator[HeadlineNumber]:
    for one in reached_by(found, metric):
        if (one.sampler, one.method, one.steps) == (best.sampler, best.method, best.steps):
            yield _number(found, metric, one)


def _number(found: RecordedExperiment, metric: str, best: Reached) -> HeadlineNumber:
    usual = [
        one.value
        for one in reached_by(found, metric)
        if (one.sampler, one.method, one.steps) == ("ddpm", USUAL, best.steps)
    ]
    return HeadlineNumber(metric, best.steps, best.value, best.label, next(iter(usual), None))
