"""Train the classifier whose features images are compared in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ocm_core.features.classifier import save
from ocm_core.features.classifier_training import train_classifier
from ocm_core.stages._data import open_data
from ocm_core.stages._features import CLASSIFIER_FILE
from ocm_core.stages._images import DataImages
from ocm_core.stages._score import finish_training
from ocm_core.stages._settings import given

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    torch.set_num_threads(job.threads)
    data = open_data(job)
    split = data.splits["train"]
    trained = train_classifier(
        DataImages(split, given(data.levels))[:],
        torch.from_numpy(given(split.labels)),
        given(job.experiment.train.classifier),
        job.folder,
        device=job.device,
        progress=lambda steps: job.progress(steps, "classifier"),
    )
    finish_training(job, trained.state)
    save(job.folder / CLASSIFIER_FILE, trained.network)
    job.note(held_out_accuracy=trained.accuracy)
