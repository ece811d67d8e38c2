"""Train the classifier whose features images are compared in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ocm_core.artifacts.dataset import open_data
from ocm_core.artifacts.feature_space import CLASSIFIER_FILE
from ocm_core.artifacts.trained import finish_training
from ocm_core.datasets.eight_bit import EightBitSplit
from ocm_core.features.classifier import save
from ocm_core.features.classifier_training import train_classifier
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    data = open_data(job)
    split = data.splits["train"]
    trained = train_classifier(
        EightBitSplit(split, require(data.levels))[:],
        torch.from_numpy(require(split.labels)),
        require(job.experiment.train.classifier),
        job.state,
        device=job.device,
        progress=lambda steps: job.progress(steps, "classifier"),
    )
    finish_training(job.folder, trained.state)
    save(job.folder / CLASSIFIER_FILE, trained.network)
    job.note(held_out_accuracy=trained.accuracy)
