"""How far the points of every cell are from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from ocm_core.artifacts.encoded import read_split
from ocm_core.artifacts.machine import machine_class
from ocm_core.artifacts.results import AXES, save, table
from ocm_core.artifacts.samples import read_samples
from ocm_core.cells import cells, parts
from ocm_core.diffusion.mixture import mixture
from ocm_core.metrics.mmd import MmdTo
from ocm_core.rng.streams import Purpose, stream
from ocm_core.schema.block import require
from ocm_core.schema.datasets import MixtureData

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment


def run(job: Job) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.mmd)
    distance = MmdTo.set(read_split(job, "test"), settings.bandwidths)
    found = table(cells(experiment), ["mmd", "clamped"])
    folders = {cell: name for name, group in parts(experiment).items() for cell in group}
    for cell in job.progress(cells(experiment), "MMD"):
        drawn = read_samples(job.inputs[f"sample/{folders[cell]}"], cell)
        place = {axis: getattr(cell, axis) for axis in AXES}
        found["mmd"].loc[place] = distance(drawn.all())
        found["clamped"].loc[place] = drawn.clamped
    found["mmd_floor"] = (
        "seed",
        [_floor(experiment, distance, s) for s in experiment.sample.seeds],
    )
    save(job.folder, found)
    job.note(machine=machine_class(job))


def _floor(experiment: Experiment, distance: MmdTo, seed: int) -> float:
    """The distance of as many fresh points of the data: what a perfect sampler would get."""
    fresh = mixture(cast(MixtureData, experiment.data)).draw(
        experiment.sample.count, stream(Purpose.MIXTURE_FRESH, seed)
    )
    return distance(torch.from_numpy(fresh.astype(np.float32)))
