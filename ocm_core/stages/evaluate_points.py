"""How far the points of every cell are from the data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
import torch

from ocm_core.cells import cells, parts
from ocm_core.metrics.mmd import MmdTo
from ocm_core.results import AXES, save, table
from ocm_core.rng.streams import Purpose, stream
from ocm_core.stages._data import read_items
from ocm_core.stages._settings import given
from ocm_core.stages.sample import read

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment


def run(job: Job) -> None:
    torch.set_num_threads(job.threads)
    experiment, settings = job.experiment, given(job.experiment.evaluate.mmd)
    distance = MmdTo.set(read_items(job, "test"), settings.bandwidths)
    found = table(cells(experiment), ["mmd", "clamped"])
    folders = {cell: name for name, group in parts(experiment).items() for cell in group}
    for cell in job.progress(cells(experiment), "MMD"):
        drawn = read(job.inputs[f"sample/{folders[cell]}"], cell)
        place = {axis: getattr(cell, axis) for axis in AXES}
        found["mmd"].loc[place] = distance(drawn.all())
        found["clamped"].loc[place] = drawn.clamped
    found["mmd_floor"] = (
        "seed",
        [_floor(experiment, distance, s) for s in experiment.sample.seeds],
    )
    save(job.folder, found)


def _floor(experiment: Experiment, distance: MmdTo, seed: int) -> float:
    """The distance of as many fresh points of the data: what a perfect sampler would get."""
    mixture = import_module(f"ocm_core.datasets.{experiment.data.kind}").mixture(experiment.data)
    fresh = mixture.draw(experiment.sample.count, stream(Purpose.MIXTURE_FRESH, seed))
    return distance(torch.from_numpy(fresh.astype(np.float32)))
