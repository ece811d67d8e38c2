"""Batch sizes that fit this machine, and the hours that an experiment takes on it.

An evaluation of the network and of the feature space are timed here, on a few images of noise; all
else follows from them by counted operations (`planning/network_counts.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

import torch

from ocm_core.artifacts.score import new_denoiser, new_trial
from ocm_core.artifacts.trained import frozen
from ocm_core.pipeline.job import found_device
from ocm_core.pipeline.table import tasks
from ocm_core.planning.cpu_times import ImageTimes, expected_seconds
from ocm_core.planning.disk_space import splits
from ocm_core.planning.machine import machine
from ocm_core.planning.network_counts import NetworkCounts, count_networks
from ocm_core.planning.run_time import duration
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment

BATCH, REPEATS = 4, 3
SCORE_STEP = 3.0  # evaluations: forward, and the gradients of inputs and weights
ROOM = 0.25  # of the memory, for one job; several run side by side
GROUPS = {
    "train": ("score", "moments", "heads"),
    "sample": ("sample",),
    "evaluate": (
        *("chains", "reference", "evaluate_images", "evaluate_jackknife"),
        *("evaluate_likelihood", "evaluate_loss", "evaluate_deviation"),
    ),
}


@dataclass(frozen=True)
class Pace:
    device: str
    times: ImageTimes
    counts: NetworkCounts

    def seconds(self, experiment: Experiment, group: str) -> float:
        """Of all tasks of a group, one after another."""
        wanted = [task for task in tasks(experiment) if task.stage in GROUPS[group]]
        return sum(expected_seconds(experiment, task, self.times) or 0.0 for task in wanted)

    def hours(self, experiment: Experiment) -> dict[str, str]:
        return {group: f"about {duration(self.seconds(experiment, group))}" for group in GROUPS}

    def total(self, experiment: Experiment) -> float:
        return sum(self.seconds(experiment, group) for group in GROUPS)


def measured(experiment: Experiment) -> Pace:
    device, counts = found_device("auto"), count_networks(experiment)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as jobs have it
    try:
        evaluation, features = _evaluation(experiment, device), _features(experiment, device)
    finally:
        torch.set_num_threads(threads)
    once = counts.evaluation.each.operations
    times = ImageTimes(
        score_step=SCORE_STEP * evaluation,
        heads_step=counts.training.each.operations / once * evaluation,
        evaluation=evaluation,
        sampling=evaluation,
        product=counts.product.each.operations / once * evaluation,
        features=features,
    )
    return Pace(device, times, counts)


def fitting_sizes(experiment: Experiment, pace: Pace) -> dict[str, Any]:
    """Batch sizes for the memory, and no more images than there are; keys as they are typed."""
    here, data = machine(), splits(experiment)
    own = here.devices[0].memory if here.devices else None  # None: shared with the system
    room = ROOM * (own or here.memory)
    train, test = data["train"].items, data["test"].items
    heads, evaluate = experiment.train.heads, experiment.evaluate
    sizes = {
        "train.heads.batch_size": min(heads.batch_size, pace.counts.training.fitting(room), train)
    }
    if "learned" in experiment.network.scores:
        score = require(experiment.train.score)
        fits = pace.counts.training.fitting(room)  # no less memory than its own step
        sizes["train.score.batch_size"] = min(score.batch_size, fits, train)
    fits = pace.counts.evaluation.fitting(room)
    sizes["sample.batch_size"] = min(experiment.sample.batch_size, fits)
    if evaluate.chains:
        sizes["evaluate.chains.images"] = min(evaluate.chains.images, train)
    if evaluate.deviation:
        sizes["evaluate.deviation.images"] = min(evaluate.deviation.images, test)
    return {key: max(1, _round(size)) for key, size in sizes.items()}


def _round(size: int) -> int:
    """Down to two figures, or to a power of two."""
    powers = [2**n for n in range(12) if 2**n <= size]
    return size if size < 8 or size % 10 == 0 else powers[-1]


def _evaluation(experiment: Experiment, device: str) -> float:
    network = frozen(new_trial(experiment, experiment.network.scores[-1]), device)
    denoiser = new_denoiser(experiment, network)
    x = torch.randn(BATCH, *experiment.shape, device=device)
    label = torch.zeros(BATCH, dtype=torch.int64, device=device) if network.conditional else None

    @torch.no_grad()
    def predict() -> object:
        return denoiser.predict(x, denoiser.schedule.steps // 2, label)

    return _milliseconds(predict)


def _features(experiment: Experiment, device: str) -> float:
    space = require(experiment.evaluate.features).space
    extractor = import_module(f"ocm_core.features.{space}").build(device)
    images = torch.randint(0, 256, (BATCH, *experiment.data.shape), dtype=torch.uint8)
    return _milliseconds(lambda: extractor.features(images))


def _milliseconds(work: Callable[[], object]) -> float:
    """For one image of the batch: the median of some repeats after a first."""
    work()
    return 1e3 * median(_timed(work) for _ in range(REPEATS)) / BATCH


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin
