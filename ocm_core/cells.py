"""The grid of samples: one cell per score, sampler, method, number of steps, guidance and seed.

`sample.split` says along which axes the grid is cut into jobs; a part is named by its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ocm_core.errors import OcmError
from ocm_core.schema.experiment import Experiment, Score


@dataclass(frozen=True)
class Cell:
    score: Score
    sampler: str
    method: str
    steps: int
    guidance: float  # 1.0: none
    seed: int

    def coordinate(self, axis: str) -> str:
        """The value along `axis`, as it is written in the names of parts."""
        prefix = {"steps": "K", "guidance": "cfg", "seed": "seed"}.get(axis, "")
        return f"{prefix}{getattr(self, axis)}"


def cells(experiment: Experiment) -> list[Cell]:
    """Every cell of an experiment, once, in the order of its parameters."""
    found = [
        Cell(score, label, method, steps, guidance, seed)
        for score in experiment.network.scores
        for label, sampler in experiment.sample.samplers.items()
        for method, grid in product(sampler.methods, sampler.grids)
        for steps, guidance, seed in product(grid.steps, grid.guidance, experiment.sample.seeds)
    ]
    return list(dict.fromkeys(found))


def parts(experiment: Experiment) -> dict[str, list[Cell]]:
    """The cells of each job of the sample stage, by the name of its part."""
    split = experiment.sample.split
    groups: dict[str, list[Cell]] = {}
    for cell in cells(experiment):
        name = "-".join(cell.coordinate(axis) for axis in split) or "all"
        groups.setdefault(name, []).append(cell)
    return groups


def cells_of(experiment: Experiment, part: str) -> list[Cell]:
    groups = parts(experiment)
    if part not in groups:
        raise OcmError(
            f"sample/{part}: not in {experiment.name}; sample.split gives {', '.join(groups)}"
        )
    return groups[part]
