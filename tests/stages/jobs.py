"""Jobs for stages that are run in this process, without a graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.networks.converted import denoiser_of
from ocm_core.params.compose import compose
from ocm_core.pipeline.artifacts import Key
from ocm_core.pipeline.graph import restrict
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Task, stages
from ocm_core.pipeline.staging import StagingFolder
from ocm_core.schema.experiment import Experiment
from tests.networks.test_converted import GaussianScore

SHAPE, LEVELS = (1, 8, 8), schedule.linear(1000)


def experiment_with(name: str, overrides: Sequence[str], methods: Sequence[str]) -> Experiment:
    """Return an experiment that defines these methods and no others."""
    whole = compose(name, overrides)
    return whole.model_copy(update={"methods": {label: whole.methods[label] for label in methods}})


def visible(experiment: Experiment, task: Task) -> Experiment:
    """Return what the stage of a task declares, as the runner gives it; the rest cannot be read."""
    return restrict(experiment, stages()[task.stage].keys(experiment, task.part), task.stage)


def job_of(
    experiment: Any, task: Task, place: Path, folders: Mapping[Task, Path] | None = None
) -> Job:
    """Return a job that writes below `place`, on the CPU."""
    for name in ("artifact", "state"):
        (place / name).mkdir(parents=True, exist_ok=True)
    return Job(
        experiment,
        folders or {},
        "cpu",
        task=task,
        folder=place / "artifact",
        state=place / "state",
        outputs=place / "outputs",
    )


def finished(job: Job) -> Path:
    """Put the artifact of a job in place, as the runner does, and return where it lies."""
    staged = StagingFolder("toy", job.task, Key(parameters="", sources=""))
    staged.place, staged.artifact = job.folder.with_name("finished"), job.folder
    staged.finish(job.notes, job.pieces)
    return staged.place


def gaussian_images(variance: float, count: int) -> tuple[torch.Tensor, Denoiser]:
    """Return images of independent pixels, and the exact score of them."""
    draw = torch.Generator().manual_seed(0)
    data = variance**0.5 * torch.randn(count, *SHAPE, generator=draw)
    network, time = GaussianScore(LEVELS, variance, "epsilon").eval(), TimeConvention(0, 1 / 1000)
    return data, denoiser_of(network, LEVELS, time, "epsilon", 1.0)
