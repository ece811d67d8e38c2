"""Measure the denoising loss of the score network on test images.

Each image is seen once, at a timestep of its own; they are spread evenly over the schedule.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.results.table import Results, Row
from ocm_core.schema.block import BatchSize, Params, Seed
from ocm_core.stages._networks import MODEL_KEYS, family_modules
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import encode_tasks, open_split, read_rows

if TYPE_CHECKING:
    from ocm_core.diffusion.denoiser import Denoiser
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment
    from ocm_core.shapes import Batch, PerSample


class ScoreLossParams(Params):
    """How many test images the loss is the mean of."""

    images: Annotated[int, Field(ge=2, le=10**9)] | None = None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed = 9


def _takes(experiment: Experiment, part: str) -> list[Task]:
    from ocm_core.stages._denoiser import denoiser_tasks

    return [*encode_tasks(experiment), *denoiser_tasks(experiment, ())]


def _work(experiment: Experiment, part: str) -> Work:
    images = STAGE.settings(experiment).images or sum(experiment.data.count_items().values())
    return Work(float(images * len(experiment.network.scores)))


STAGE = Stage(
    __name__,
    "evaluate",
    params=ScoreLossParams,
    takes=_takes,
    reads=MODEL_KEYS,
    plugins=lambda experiment, part: family_modules(experiment),
    gpu=True,
    memory=16_000,
    work=_work,
)


class ScoreLoss(ResultsTable):
    """One row of the measure `loss` per score."""


def run(job: Job) -> None:
    import torch

    from ocm_core.stages._denoiser import load_score

    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    stored = len(open_split(job, "test"))
    count = min(settings.images or stored, stored)
    batches = [
        range(first, min(first + settings.batch_size, count))
        for first in range(0, count, settings.batch_size)
    ]
    rows = []
    for score in experiment.network.scores:
        denoiser = load_score(job, score)
        seen = job.progress(batches, f"loss of the {score} score")
        losses = torch.cat([_losses(job, denoiser, batch, count) for batch in seen]).double()
        error = float(losses.std()) / sqrt(count)
        rows.append(Row("loss", float(losses.mean()), error, score=score))
    ScoreLoss(job.folder).save(Results(rows))
    job.note(images=count, machine=machine_class(job))


def _losses(job: Job, denoiser: Denoiser, batch: range, count: int) -> PerSample:
    """(ε - ε̂)², averaged over the values of each image."""
    import torch

    from ocm_core.diffusion.schedule import q_sample

    schedule = denoiser.schedule
    x0, label = read_rows(job, "test", batch, denoiser.network.conditional)
    times = [1 + (2 * row + 1) * schedule.steps // (2 * count) for row in batch]
    eps = torch.cat([_noise(job, row, t) for row, t in zip(batch, times, strict=True)])
    t = torch.tensor(times, device=job.device)
    x = q_sample(x0, eps, *schedule.marginal_at(t, x0))
    with torch.no_grad():
        predicted = denoiser.predict(x, t, label).eps
    return (eps - predicted).square().flatten(1).mean(1).cpu()


def _noise(job: Job, row: int, t: int) -> Batch:
    """Draw as the bound does for this image and timestep."""
    from ocm_core.rng.noise import NoiseFor, SampleNoise

    seed, shape = STAGE.settings(job.experiment).seed, job.experiment.shape
    return SampleNoise(seed, [row], shape, job.device, NoiseFor.LIKELIHOOD, t).normal()
