"""How far the samples of every cell are from the data."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import torch

from ocm_core.diffusion.noise import generator
from ocm_core.metrics.mmd import MmdTo
from ocm_core.pipeline.cells import cells, parts
from ocm_core.results import AXES, save, table
from ocm_core.stages._data import read_items
from ocm_core.stages.sample import read, runs

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
    for seeds in job.progress(runs(cells(experiment)), "MMD"):
        drawn = read(job.inputs[f"sample/{folders[seeds[0]]}"], seeds[0]).load()
        for cell, tally in zip(seeds, drawn.attrs["clamped"], strict=True):
            place = {axis: getattr(cell, axis) for axis in AXES}
            points = torch.from_numpy(drawn["x"].sel(seed=cell.seed).values)
            found["mmd"].loc[place] = distance(points)
            found["clamped"].loc[place] = _share_clamped(tally)
    found["mmd_floor"] = (
        "seed",
        [_floor(experiment, distance, s) for s in experiment.sample.seeds],
    )
    save(job.folder, found)


def _share_clamped(tally: Mapping[str, int]) -> float:
    """Of the covariance's entries, how many had to be clamped."""
    return (tally.get("below", 0) + tally.get("above", 0)) / max(1, tally.get("entries", 0))


def _floor(experiment: Experiment, distance: MmdTo, seed: int) -> float:
    """The distance of as many fresh points of the data: what a perfect sampler would get."""
    mixture = import_module(f"ocm_core.data.{experiment.data.kind}").mixture(experiment.data)
    fresh = mixture.draw(experiment.sample.count, generator(seed, 0, "normal"))
    return distance(torch.from_numpy(fresh.astype(np.float32)))
