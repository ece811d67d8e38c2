"""What a budget of network evaluations buys, from the committed numbers of an experiment.

A route is a sampler with a covariance method; rivals are the solvers of diffusers, as on the pages.
Where an experiment is guided, its least scale is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ocm_core.compare.recorded import Key, RecordedExperiment
from ocm_core.compare.text import split_key
from ocm_core.schema.experiment import Experiment

USUAL = "beta_tilde"  # the variance that DDPM is usually sampled with
OURS, SOLVER, AS_USUAL = "best of ours", "best solver", f"{USUAL}, DDPM"
DISTANCES = ("fid", "mmd_learned_score", "mmd_true_score")  # the first that was measured counts


@dataclass(frozen=True)
class Reached:
    """A value, and the route that reached it."""

    value: float
    sampler: str
    method: str
    steps: int

    @property
    def label(self) -> str:
        return self.sampler if self.method == "none" else f"{self.sampler}, {self.method}"


Line = tuple[Reached, ...]  # along the number of steps


def distance_of(found: RecordedExperiment) -> str | None:
    metrics = {key[0] for key in found.numbers}
    return next((name for name in DISTANCES if name in metrics), None)


def frontier_lines(
    found: RecordedExperiment, experiment: Experiment, metric: str
) -> dict[str, Line]:
    """The best of ours, the best solver, and the usual variance; those that were sampled."""
    reached = reached_by(found, metric)
    rivals = {k for k, sampler in experiment.sample.samplers.items() if sampler.kind == "diffusers"}
    sides = {
        OURS: [one for one in reached if one.sampler not in rivals],
        SOLVER: [one for one in reached if one.sampler in rivals],
        AS_USUAL: [one for one in reached if (one.sampler, one.method) == ("ddpm", USUAL)],
    }
    return {name: _lowest(side) for name, side in sides.items() if side}


def reached_by(found: RecordedExperiment, metric: str) -> list[Reached]:
    """Every value of a metric, at the least guidance where there are several."""
    least: dict[Key, tuple[float, Reached]] = {}
    for key, value in found.numbers.items():
        name, sampler, method, where = split_key(key)
        places = _places(where)
        if name != metric or "K" not in places:
            continue
        scale = places.get("cfg", 1.0)
        if key[:4] not in least or scale < least[key[:4]][0]:
            least[key[:4]] = scale, Reached(value, sampler, method, int(places["K"]))
    return [one for _, one in least.values()]


def _lowest(side: list[Reached]) -> Line:
    lowest: dict[int, Reached] = {}
    for one in side:
        if one.steps not in lowest or one.value < lowest[one.steps].value:
            lowest[one.steps] = one
    return tuple(lowest[steps] for steps in sorted(lowest))


def _places(where: str) -> Mapping[str, float]:
    """`K10 cfg1.5` → K: 10, cfg: 1.5."""
    words = [(word.rstrip("0123456789."), word) for word in where.split()]
    return {kind: float(word.removeprefix(kind)) for kind, word in words}
