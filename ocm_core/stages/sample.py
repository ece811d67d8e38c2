"""Draw the samples of one part's cells."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr

from ocm_core import covariance
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import chains
from ocm_core.diffusion.noise import SampleStreams
from ocm_core.diffusion.transition import Ddim, Ddpm, Kernel
from ocm_core.likelihood.decoder import pixel_sigma_limit
from ocm_core.pipeline.cells import Cell, cells_of
from ocm_core.samplers.ancestral import Model, Sampled, ancestral
from ocm_core.stages._heads import load_denoiser

if TYPE_CHECKING:
    from ocm_core.params.schema import Sampler
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    experiment = job.experiment
    cells = cells_of(experiment, job.part)
    models = {
        score: load_denoiser(job, score, sorted({c.method for c in cells if c.score == score}))
        for score in dict.fromkeys(cell.score for cell in cells)
    }
    for seeds in job.progress(runs(cells), "sampling"):
        target = job.folder / f"{run_name(seeds[0])}.zarr"
        if not target.exists():
            _write(target, [_draw(job, models[cell.score], cell) for cell in seeds], seeds)
    job.note(cells=len(cells), samples_per_cell=experiment.sample.count)


def runs(cells: list[Cell]) -> list[list[Cell]]:
    """Cells that differ only in their seed share a store."""
    return [list(group) for _, group in groupby(cells, key=run_name)]


def run_name(cell: Cell) -> str:
    guidance = "" if cell.guidance is None else f"-cfg{cell.guidance}"
    return f"{cell.score}-{cell.sampler}-{cell.method}-K{cell.steps}{guidance}"


def _draw(job: Job, model: Model, cell: Cell) -> Sampled:
    experiment, sample = job.experiment, job.experiment.sample
    sampler, method = sample.samplers[cell.sampler], experiment.methods[cell.method]
    limits = sample.clip
    batches = []
    for indices in _batches(sample.count, sample.batch_size):
        batches.append(
            ancestral(
                model,
                covariance.build(method.kind, cell.method, **method.options),
                chains.build(sampler.chain, experiment.schedule.steps, cell.steps),
                SampleStreams(cell.seed, indices, experiment.data.shape, job.device),
                kernel=_kernel(sampler),
                clip=Clip(x0=limits.x0, c_max=limits.covariance),
                last_sigma=(
                    None
                    if limits.last_sigma_pixels is None
                    else pixel_sigma_limit(limits.last_sigma_pixels)
                ),
            )
        )
    return Sampled(
        torch.cat([batch.x for batch in batches]), sum((b.tally for b in batches), Counter())
    )


def _kernel(sampler: Sampler) -> Kernel:
    return Ddpm() if sampler.kind == "ddpm" else Ddim(sampler.eta)


def _batches(count: int, size: int) -> Iterator[range]:
    for first in range(0, count, size):
        yield range(first, min(first + size, count))


def _write(target: Path, drawn: list[Sampled], cells: list[Cell]) -> None:
    """Whole or not at all: written beside its place, then renamed."""
    values = np.stack([sampled.x.cpu().numpy() for sampled in drawn])
    axes = [f"axis{i}" for i in range(values.ndim - 2)]
    dataset = xr.Dataset(
        {"x": (["seed", "sample", *axes], values)},
        coords={"seed": [cell.seed for cell in cells]},
        attrs={"clamped": [dict(sorted(sampled.tally.items())) for sampled in drawn]},
    )
    temporary = target.with_name(f"new-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    encoding = {"x": {"chunks": (1, *values.shape[1:]), "compressors": None}}
    dataset.to_zarr(temporary, mode="w", encoding=encoding, consolidated=False, zarr_format=3)
    temporary.rename(target)


def read(folder: Path, cell: Cell) -> xr.Dataset:
    run_: xr.Dataset = xr.open_zarr(folder / f"{run_name(cell)}.zarr", consolidated=False)
    return run_
