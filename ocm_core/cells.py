"""The grid of samples: one cell per score, sampler, method, nfe, guidance and seed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment

_PREFIX = {"nfe": "nfe", "guidance": "cfg", "seed": "seed"}  # in the names of parts


@dataclass(frozen=True)
class Cell:
    """One way to sample, from one seed."""

    score: str
    sampler: str
    method: str
    nfe: int
    guidance: float  # 1.0: none
    seed: int

    @property
    def place(self) -> dict[str, Any]:
        """The columns of the results table that this cell fills."""
        columns = ("score", "sampler", "method", "nfe", "guidance")
        place = {name: getattr(self, name) for name in columns}
        return {**place, "replicate": f"seed{self.seed}"}


def cells(experiment: Experiment) -> list[Cell]:
    """Return every cell of an experiment, once, in the order of its parameters."""
    found = [
        Cell(score, label, method, nfe, guidance, seed)
        for score in experiment.network.scores
        for label, sampler in experiment.sample.samplers.items()
        for method, grid in product(sampler.methods, sampler.grids)
        for nfe, guidance, seed in product(grid.nfe, grid.guidance, experiment.sample.seeds)
    ]
    return list(dict.fromkeys(found))


def parts(experiment: Experiment) -> dict[str, list[Cell]]:
    """Return the cells of each job of the sample stage, by part (see `sample.split`)."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells(experiment):
        values = (f"{_PREFIX.get(a, '')}{getattr(cell, a)}" for a in experiment.sample.split)
        groups.setdefault("-".join(values) or "all", []).append(cell)
    return groups


def cells_of(experiment: Experiment, part: str) -> list[Cell]:
    """Return the cells of one part of the sample stage."""
    return parts(experiment)[part]
