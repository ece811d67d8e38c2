"""Measure the denoising loss of the score network on test images."""

from typing import Annotated

import torch
from pydantic import Field

from ocm_core.metrics import mean_and_error
from ocm_core.results.table import Row
from ocm_core.rng.batches import batches
from ocm_core.schema.block import BatchSize, Seed
from ocm_core.shapes import PerSample
from ocm_core.stages import Job, Params
from ocm_core.stages._evaluation import evaluation
from ocm_core.stages._networks import load_score
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import count_images, read_rows
from ocm_core.training.score_matching import losses_at_own_times


class ScoreLossParams(Params):
    """How many test images the loss is the mean of, each at one timestep, spread evenly."""

    images: Annotated[int, Field(ge=2, le=10**9)] | None = None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed = 9


STAGE = evaluation(__name__, ScoreLossParams, passes=lambda experiment, settings: 1)


class ScoreLoss(ResultsTable):
    """One row of the measure `loss` per score."""


def run(job: Job) -> None:
    """Average the loss over images, score by score."""
    settings, rows = STAGE.settings(job.experiment), list[Row]()
    count = count_images(job, settings.images)
    for score in job.experiment.network.scores:
        denoiser, losses = load_score(job, score), list[PerSample]()
        cut = batches(count, settings.batch_size)
        for batch in job.progress(cut, f"loss of the {score} score"):
            items = read_rows(job, "test", batch, denoiser.network.conditional)
            losses.append(losses_at_own_times(denoiser, *items, batch, count, settings.seed))
        rows.append(Row("loss", *mean_and_error(torch.cat(losses).double()), score=score))
    ScoreLoss(job.folder).save(rows)
    job.note(images=count, machine=machine_class(job))
