"""Measure the denoising loss of the score network on test images."""

from math import sqrt
from typing import Annotated

import torch
from pydantic import Field

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import q_sample
from ocm_core.results.table import Results, Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import BatchSize, Seed
from ocm_core.shapes import PerSample
from ocm_core.stages import Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating, load_score
from ocm_core.stages._results import ResultsTable, batches, check_test_split, machine_class
from ocm_core.stages.encode import open_split, read_rows


class ScoreLossParams(Params):
    """How many test images the loss is the mean of, each at one timestep, spread evenly."""

    images: Annotated[int, Field(ge=2, le=10**9)] | None = None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed = 9


STAGE: Stage[ScoreLossParams] = Stage(
    __name__,
    "evaluate",
    params=ScoreLossParams,
    **evaluating(),
    work=lambda e, part: Work(
        (STAGE.settings(e).images or e.data.count_items()["test"]) * len(e.network.scores)
    ),
    check=lambda experiment: check_test_split(experiment, "evaluate.score_loss"),
)


class ScoreLoss(ResultsTable):
    """One row of the measure `loss` per score."""


def run(job: Job) -> None:
    """Average the loss over images, score by score."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    stored = len(open_split(job, "test"))
    count, rows = min(settings.images or stored, stored), []
    for score in experiment.network.scores:
        denoiser = load_score(job, score)
        seen = job.progress(batches(count, settings.batch_size), f"loss of the {score} score")
        losses = torch.cat([_losses(job, denoiser, batch, count) for batch in seen]).double()
        error = float(losses.std()) / sqrt(count)
        rows.append(Row("loss", float(losses.mean()), error, score=score))
    ScoreLoss(job.folder).save(Results(rows))
    job.note(images=count, machine=machine_class(job))


def _losses(job: Job, denoiser: Denoiser, batch: range, count: int) -> PerSample:
    """(ε - ε̂)², averaged over the values of each image; ε as in the bound at its timestep."""
    schedule, shape = denoiser.schedule, job.experiment.shape
    seed, use = STAGE.settings(job.experiment).seed, NoiseFor.LIKELIHOOD
    x0, label = read_rows(job, "test", batch, denoiser.network.conditional)
    times = [1 + (2 * row + 1) * schedule.steps // (2 * count) for row in batch]
    noise = [
        SampleNoise(seed, [row], shape, job.device, use, t).normal()
        for row, t in zip(batch, times, strict=True)
    ]
    eps, t = torch.cat(noise), torch.tensor(times, device=job.device)
    x = q_sample(x0, eps, *schedule.marginal_at(t, x0))
    with torch.no_grad():
        predicted = denoiser.predict(x, t, label).eps
    return (eps - predicted).square().flatten(1).mean(1).cpu()
