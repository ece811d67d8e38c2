"""Train the classifier whose features images are compared in."""

from pathlib import Path

import torch

from ocm_core.datasets.base import EightBitSplit
from ocm_core.features.classifier import save
from ocm_core.features.classifier_training import train_classifier
from ocm_core.stages import Artifact, Job, Params, Stage, require
from ocm_core.stages._networks import finish_training
from ocm_core.stages.fetch_data import FetchedData, data_modules, open_data

STAGE: Stage[Params] = Stage(
    __name__,
    "encode",
    parts=lambda experiment: ["all"] * ("classifier" in experiment.spaces),
    takes=lambda experiment, part: [FetchedData.task()],
    reads=("data", "train.classifier"),
    plugins=data_modules,
    gpu=True,
)


class ClassifierWeights(Artifact):
    """The weights of the classifier, and its loss curve."""

    @property
    def file(self) -> Path:
        return self.folder / "classifier.safetensors"


def run(job: Job) -> None:
    """Train on the training images, and keep the weights."""
    data = open_data(job)
    split = data.splits["train"]
    network, accuracy, state = train_classifier(
        EightBitSplit(split, require(data.levels))[:],
        torch.from_numpy(require(split.labels)),
        require(job.experiment.train.classifier),
        job.state,
        device=job.device,
        progress=lambda steps: job.progress(steps, "classifier"),
    )
    finish_training(job.folder, state)
    save(ClassifierWeights(job.folder).file, network)
    job.note(held_out_accuracy=accuracy)
