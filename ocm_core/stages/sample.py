"""Draw the samples of one part's cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from numpy import ndarray

from ocm_core.artifacts.chains import optimal_chains
from ocm_core.artifacts.heads import load_denoiser
from ocm_core.artifacts.samples import SampleStore, by_store
from ocm_core.cells import Cell, cells_of
from ocm_core.diffusion.execution import executed
from ocm_core.samplers.cell_sampler import CellSampler

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

    optimal = {score: optimal_chains(job, score) for score in models}

    def draw(cell: Cell, indices: range) -> tuple[ndarray, Mapping[str, int]]:
        sampler = CellSampler(experiment, models[cell.score], cell, job.device, optimal[cell.score])
        drawn = sampler.draw(indices, sampler.labels(indices))
        return drawn.x.cpu().numpy(), drawn.tally

    for group in job.progress(by_store(cells), "sampling"):
        SampleStore(job.folder, group, experiment.shape, experiment.sample).write(draw)
    job.note(cells=len(cells), samples_per_cell=experiment.sample.count)
