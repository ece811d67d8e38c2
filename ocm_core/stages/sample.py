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

from ocm_core import covariance
from ocm_core.covariance.interface import Clip
from ocm_core.data import store
from ocm_core.data.plan import Plan
from ocm_core.data.stored import Stored, open_split
from ocm_core.diffusion import chains
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.execution import executed
from ocm_core.diffusion.guidance import GuidedDenoiser
from ocm_core.diffusion.noise import SampleStreams, generator
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel
from ocm_core.errors import OcmError
from ocm_core.likelihood.decoder import pixel_sigma_limit
from ocm_core.pipeline.cells import Cell, cells_of
from ocm_core.processes import current_shard
from ocm_core.samplers.ancestral import Model, ancestral
from ocm_core.stages._heads import load_denoiser

if TYPE_CHECKING:
    from ocm_core.params.schema import Guidance, Sampler
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
        path, shard = self.job.folder / f"{name}.zarr", current_shard()
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
                x, tally = self._draw(cell, indices)
                drawn.append(x.cpu().numpy())
                tallies[cell.seed] = dict(sorted(tally.items()))
        file = _tallies(self.job.folder, self.cells[0]) / f"{rows.start}.json"
        file.write_text(json.dumps(tallies) + "\n")
        return {"x": np.concatenate(drawn)}

    def _draw(self, cell: Cell, indices: range) -> tuple[Tensor, Counter[str]]:
        experiment, device = self.job.experiment, self.job.device
        sample = experiment.sample
        sampler, method = sample.samplers[cell.sampler], experiment.methods[cell.method]
        drawn = ancestral(
            _guided(self.denoiser, cell.guidance, sample.guidance),
            covariance.build(method.kind, cell.method, **method.options),
            chains.build(sampler.chain, experiment.schedule.steps, cell.steps),
            SampleStreams(cell.seed, indices, experiment.shape, device),
            kernel=_kernel(sampler),
            clip=Clip(x0=sample.clip.x0, c_max=sample.clip.covariance),
            last_sigma=_last_sigma(sampler, experiment.levels),
            label=_labels(self.denoiser, experiment.data.classes, cell.seed, indices, device),
        )
        return drawn.x, drawn.tally


def _tallies(folder: Path, cell: Cell) -> Path:
    return folder / f"{run_name(cell)}.clamped"


def _guided(denoiser: Denoiser, scale: float, guidance: Guidance) -> Model:
    if scale == 1.0:
        return denoiser
    if denoiser.network.null_label is None:
        raise OcmError(f"guidance {scale} needs a network with a null class; use 1.0")
    channels = 3 if guidance.channels == "first_three" else None
    null = denoiser.network.null_label
    return GuidedDenoiser(denoiser, scale, null, channels, guidance.covariance)


def _labels(
    denoiser: Denoiser, classes: int, seed: int, indices: range, device: str
) -> Tensor | None:
    """Uniform over the classes, each from its sample's own stream."""
    if not denoiser.network.conditional:
        return None
    drawn = [int(generator(seed, index, "label").integers(classes)) for index in indices]
    return torch.tensor(drawn, device=device)


def _kernel(sampler: Sampler) -> Kernel:
    return Ddpm() if sampler.kind == "ddpm" else Ddim(sampler.eta)


def _last_sigma(sampler: Sampler, levels: int | None) -> float | None:
    if sampler.last_sigma is None or levels is None:
        return None
    return pixel_sigma_limit(sampler.last_sigma, levels)
