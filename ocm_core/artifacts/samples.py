"""Samples: a Zarr store for all cells that differ in their seed alone, one seed after another.

Beside each store lies how many entries of the covariance were clamped, batch by batch.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from ocm_core.cells import Cell
from ocm_core.distributed import current_rank
from ocm_core.io.atomic import write_text
from ocm_core.io.seals import intact, seal
from ocm_core.schema.experiment import SampleParams
from ocm_core.store import writer
from ocm_core.store.layout import StoreLayout, store_path
from ocm_core.store.reader import StoredSplit, open_split

Draw = Callable[[Cell, range], tuple[ndarray, Mapping[str, int]]]  # samples, and what was clamped


@dataclass(frozen=True)
class CellSamples:
    """The samples of one cell, and the share of covariance entries that were clamped."""

    stored: StoredSplit
    first: int
    count: int
    clamped: float

    def read(self, rows: range) -> Tensor:
        shifted = range(self.first + rows.start, self.first + rows.stop)
        return torch.from_numpy(self.stored.read(shifted))

    def all(self) -> Tensor:
        return self.read(range(self.count))


def store_name(cell: Cell) -> str:
    guidance = "" if cell.guidance == 1.0 else f"-cfg{cell.guidance}"
    return f"{cell.score}-{cell.sampler}-{cell.method}-K{cell.steps}{guidance}"


def by_store(cells: list[Cell]) -> list[list[Cell]]:
    return [list(group) for _, group in groupby(cells, key=store_name)]


def read_samples(folder: Path, cell: Cell) -> CellSamples:
    stored = open_split([folder], store_name(cell))
    seeds = stored.attrs["seeds"]
    count, place = len(stored) // len(seeds), seeds.index(cell.seed)
    tally = Counter[str]()
    for file in _tallies(folder, cell).glob("*.json"):
        tally.update(json.loads(file.read_text()).get(str(cell.seed), {}))
    clamped = (tally["below"] + tally["above"]) / max(1, tally["entries"])
    return CellSamples(stored, place * count, count, clamped)


@dataclass(frozen=True)
class SampleStore:
    """The store of `cells`, filled batch by batch; a batch is a shard, which has one writer."""

    folder: Path
    cells: list[Cell]
    shape: tuple[int, ...]
    params: SampleParams

    def write(self, draw: Draw) -> None:
        """Draw what is not there yet, shared among processes."""
        path, rank = store_path(self.folder, store_name(self.cells[0])), current_rank()
        if rank.is_first:
            writer.begin(path, self._layout, {"seeds": [cell.seed for cell in self.cells]})
        mine = rank.mine(rank.agreed(lambda: self._missing(path)))
        writer.write_shards(path, self._layout, mine, lambda rows: self._batch(rows, draw))
        rank.wait()
        if rank.is_first:
            writer.verify(path, self._layout)

    @property
    def _layout(self) -> StoreLayout:
        total = self.params.count * len(self.cells)
        batch = min(self.params.batch_size, total)
        return StoreLayout(
            items=range(total), shape=self.shape, dtype="float32", chunk=batch, shard=batch
        )

    def _batch(self, rows: range, draw: Draw) -> dict[str, ndarray]:
        """A batch may span the end of one seed's samples and the beginning of the next's."""
        count = self.params.count
        drawn, tallies = [], {}
        for place, cell in enumerate(self.cells):
            first, stop = place * count, (place + 1) * count
            indices = range(max(rows.start, first) - first, min(rows.stop, stop) - first)
            if indices:
                samples, tally = draw(cell, indices)
                drawn.append(samples)
                tallies[cell.seed] = dict(sorted(tally.items()))
        file = self._tally(rows)
        write_text(file, json.dumps(tallies) + "\n")
        seal(file)
        return {"x": np.concatenate(drawn)}

    def _missing(self, path: Path) -> list[range]:
        """The batches whose samples or tally are not there as they were written."""
        lacking = writer.missing(path, self._layout)
        return [b for b in self._layout.shards if b in lacking or not intact(self._tally(b))]

    def _tally(self, rows: range) -> Path:
        return _tallies(self.folder, self.cells[0]) / f"{rows.start}.json"


def _tallies(folder: Path, cell: Cell) -> Path:
    return folder / f"{store_name(cell)}.clamped"
