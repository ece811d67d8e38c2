"""How far the samples of every cell are from the data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr

from ocm_core.diffusion.noise import generator
from ocm_core.metrics.mmd import MmdTo
from ocm_core.pipeline.cells import cells, parts
from ocm_core.results import save, table
from ocm_core.stages._model import read_items
from ocm_core.stages.sample import read

if TYPE_CHECKING:
    from ocm_core.params.schema import Experiment
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    torch.set_num_threads(job.threads)
    experiment, settings = job.experiment, job.experiment.evaluate.mmd
    if settings is None:
        raise ValueError("the graph has this stage only where evaluate.mmd is set")
    distance = MmdTo.set(read_items(job, "test"), settings.bandwidths)
    found = table(cells(experiment), ["mmd", "clamped"])
    folders = {cell: name for name, group in parts(experiment).items() for cell in group}
    for cell in job.progress(cells(experiment), "MMD"):
        run_ = read(job.inputs[f"sample/{folders[cell]}"], cell).sel(seed=cell.seed)
        place = {k: getattr(cell, k) for k in ("score", "sampler", "method", "steps", "seed")}
        found["mmd"].loc[place] = distance(torch.from_numpy(run_["x"].values))
        found["clamped"].loc[place] = _clamped(run_, experiment, cell.seed)
    found["mmd_floor"] = (
        "seed",
        [_floor(experiment, distance, s) for s in experiment.sample.seeds],
    )
    save(job.folder, found)


def _clamped(run_: xr.Dataset, experiment: Experiment, seed: int) -> float:
    """The share of the covariance's entries that had to be clamped."""
    tally = run_.attrs["clamped"][experiment.sample.seeds.index(seed)]
    return float((tally.get("below", 0) + tally.get("above", 0)) / max(1, tally.get("entries", 0)))


def _floor(experiment: Experiment, distance: MmdTo, seed: int) -> float:
    """The distance of as many fresh points of the data: what a perfect sampler would get."""
    mixture = import_module(f"ocm_core.data.{experiment.data.kind}").mixture(experiment.data)
    fresh = mixture.draw(experiment.sample.count, generator(seed, 0, "normal"))
    return distance(torch.from_numpy(fresh.astype(np.float32)))
