"""Measure the maximum mean discrepancy between the points of every cell and the data."""

from typing import cast

import numpy as np
import torch

from ocm_core.cells import cells, parts
from ocm_core.datasets.base import DrawnData
from ocm_core.metrics.mmd import MmdTo
from ocm_core.results.table import Row
from ocm_core.rng.streams import Stream, stream
from ocm_core.schema.block import Choices, Positive
from ocm_core.stages import Job, Params, Stage
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import encode_tasks, open_split
from ocm_core.stages.fetch_data import data_modules
from ocm_core.stages.sample import Samples, sample_tasks

NO_POINTS = "evaluate.mmd: for points; images are compared by evaluate.distances; use null"


class MmdParams(Params):
    """Maximum mean discrepancy between samples and test points, over several bandwidths."""

    bandwidths: Choices[Positive] = [0.25, 0.5, 1.0, 2.0, 4.0]


STAGE = Stage(
    __name__,
    "evaluate",
    params=MmdParams,
    takes=lambda experiment, part: [*encode_tasks(experiment), *sample_tasks(experiment)],
    reads=("data", "network.scores", "sample"),
    plugins=data_modules,
    check=lambda experiment: [NO_POINTS] * (not isinstance(experiment.data, DrawnData)),
)


class Mmd(ResultsTable):
    """Rows of the measures `mmd`, `clamped` and `mmd_floor`."""


def run(job: Job) -> None:
    """Compare the points of every cell with test points, and fresh data as well."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    test = torch.from_numpy(open_split(job, "test").all())
    distance = MmdTo(test, settings.bandwidths)
    part_of = {cell: name for name, group in parts(experiment).items() for cell in group}
    rows = []
    for cell in job.progress(cells(experiment), "MMD"):
        drawn = job.take(Samples, part_of[cell]).read(cell)
        rows.append(Row("mmd", distance(drawn[:]), **cell.place))
        rows.append(Row("clamped", drawn.clamped, **cell.place))
    truth, count = cast(DrawnData, experiment.data).density, experiment.sample.count
    for seed in experiment.sample.seeds:  # as many fresh points of the data: a perfect sampler's
        fresh = truth.draw(count, stream(Stream.MIXTURE_FRESH, seed))
        floor = distance(torch.from_numpy(fresh.astype(np.float32)))
        rows.append(Row("mmd_floor", floor, replicate=f"seed{seed}"))
    Mmd(job.folder).save(rows)
    job.note(machine=machine_class(job))
