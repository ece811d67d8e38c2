"""Draw the samples of one part's cells. Cells that differ only in their seed share a store."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ocm_core.cells import Cell, cells_of
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.execution import executed
from ocm_core.distributed import current_rank
from ocm_core.stages._cells import CellSampler
from ocm_core.stages._heads import load_denoiser
from ocm_core.store import writer as store
from ocm_core.store.layout import Plan
from ocm_core.store.reader import Stored, open_split

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment = job.experiment
    cells = cells_of(experiment, job.part)
    models = {
        score: executed(
            load_denoiser(job, score, sorted({c.method for c in cells if c.score == score})),
            **experiment.sample.execution.model_dump(),
        )
        for score in dict.fromkeys(cell.score for cell in cells)
    }
    for seeds in job.progress(runs(cells), "sampling"):
        Run(job, models[seeds[0].score], seeds).write()
    job.note(cells=len(cells), samples_per_cell=experiment.sample.count)


def runs(cells: list[Cell]) -> list[list[Cell]]:
    return [list(group) for _, group in groupby(cells, key=run_name)]


def run_name(cell: Cell) -> str:
    guidance = "" if cell.guidance == 1.0 else f"-cfg{cell.guidance}"
    return f"{cell.score}-{cell.sampler}-{cell.method}-K{cell.steps}{guidance}"


@dataclass(frozen=True)
class Drawn:
    """The samples of one cell, and the share of covariance entries that were clamped."""

    stored: Stored
    first: int
    count: int
    clamped: float

    def read(self, rows: range) -> Tensor:
        shifted = range(self.first + rows.start, self.first + rows.stop)
        return torch.from_numpy(self.stored.read(shifted))

    def all(self) -> Tensor:
        return self.read(range(self.count))


def read(folder: Path, cell: Cell) -> Drawn:
    stored = open_split([folder], run_name(cell))
    seeds = stored.attrs["seeds"]
    count, place = len(stored) // len(seeds), seeds.index(cell.seed)
    tally = Counter[str]()
    for file in _tallies(folder, cell).glob("*.json"):
        tally.update(json.loads(file.read_text()).get(str(cell.seed), {}))
    clamped = (tally["below"] + tally["above"]) / max(1, tally["entries"])
    return Drawn(stored, place * count, count, clamped)


@dataclass(frozen=True)
class Run:
    """One store: the samples of all seeds, one after another; a batch is a shard of it."""

    job: Job
    denoiser: Denoiser
    cells: list[Cell]

    def write(self) -> None:
        sample = self.job.experiment.sample
        total = sample.count * len(self.cells)
        batch = min(sample.batch_size, total)
        plan = Plan(
            items=range(total),
            shape=self.job.experiment.shape,
            dtype="float32",
            chunk=batch,
            shard=batch,
        )
        name = run_name(self.cells[0])
        _tallies(self.job.folder, self.cells[0]).mkdir(exist_ok=True)
        seeds = {"seeds": [cell.seed for cell in self.cells]}
        path, shard = self.job.folder / f"{name}.zarr", current_rank()
        if shard.is_first:
            store.begin(path, plan, seeds)
        shard.wait()
        mine = shard.mine(store.missing(path, plan))
        shard.wait()  # nobody writes before all have looked
        store.write_shards(path, plan, mine, self._shard)
        shard.wait()
        if shard.is_first:
            store.verify(path, plan)

    def _shard(self, rows: range) -> dict[str, np.ndarray]:
        """A batch may span the end of one seed's samples and the beginning of the next's."""
        count = self.job.experiment.sample.count
        drawn, tallies = [], {}
        for place, cell in enumerate(self.cells):
            first, stop = place * count, (place + 1) * count
            indices = range(max(rows.start, first) - first, min(rows.stop, stop) - first)
            if indices:
                one = CellSampler(self.job.experiment, self.denoiser, cell, self.job.device)
                samples = one.draw(indices, one.labels(indices))
                drawn.append(samples.x.cpu().numpy())
                tallies[cell.seed] = dict(sorted(samples.tally.items()))
        file = _tallies(self.job.folder, self.cells[0]) / f"{rows.start}.json"
        file.write_text(json.dumps(tallies) + "\n")
        return {"x": np.concatenate(drawn)}


def _tallies(folder: Path, cell: Cell) -> Path:
    return folder / f"{run_name(cell)}.clamped"
