"""Milliseconds of one thread for an image: what `ocm_core/planning/cpu_times.py` has as data.

`python -m benchmarks.image_times cifar10_small`. Weights are untrained and images are noise: the
times do not depend on them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from statistics import median
from typing import cast

import torch

from benchmarks.measuring import seconds, single_thread
from ocm_core import covariance
from ocm_core.artifacts.heads import new_head
from ocm_core.artifacts.score import new_denoiser, new_score
from ocm_core.covariance.learned import LearnedMethod
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.execution import executed
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.features.classifier import Classifier, ClassifierNetwork
from ocm_core.features.interface import FeatureSpace, extract
from ocm_core.params.resolved import load
from ocm_core.planning.cpu_times import ImageTimes
from ocm_core.rng.batches import BatchRng
from ocm_core.schema.block import require
from ocm_core.schema.experiment import Experiment
from ocm_core.training.batches import InMemory, NoisyDraws
from ocm_core.training.head_fitting import HeadFitting
from ocm_core.training.objective import Objective
from ocm_core.training.score_matching import ScoreMatching

BATCH, REPEATS = 32, 5


def image_times(experiment: Experiment) -> ImageTimes:
    torch.manual_seed(0)
    trained = new_denoiser(experiment, new_score(experiment, "learned"))
    if require(experiment.train.score).precision == "bfloat16":
        trained = replace(trained, precision=torch.bfloat16)
    frozen = new_denoiser(experiment, new_score(experiment, "learned").eval().requires_grad_(False))
    sampled = executed(frozen, **experiment.sample.execution.model_dump())
    items, decoder = InMemory(torch.randn(BATCH, *experiment.shape)), Decoder(experiment.levels)
    settings = require(experiment.evaluate.features)
    images = torch.randint(0, 256, (BATCH, *experiment.data.shape), dtype=torch.uint8)
    extractor = _space(experiment, settings.space)
    return ImageTimes(
        score_step=_milliseconds(lambda: _step(ScoreMatching(trained, items, decoder))),
        heads_step=_milliseconds(lambda: _step(_fitting(experiment, frozen, items, decoder))),
        evaluation=_milliseconds(lambda: _evaluation(frozen, items)),
        sampling=_milliseconds(lambda: _evaluation(sampled, items)),
        product=_milliseconds(_product(frozen, items)),
        features=_milliseconds(lambda: extract(extractor, images, settings.batch_size)),
    )


def _space(experiment: Experiment, name: str) -> FeatureSpace:
    """Weights that are made by a stage are untrained here, too."""
    if name == "classifier":
        channels, side, _ = experiment.data.shape
        network = ClassifierNetwork(channels, side, experiment.data.classes)
        return Classifier(network.eval().requires_grad_(False), "cpu")
    return cast(FeatureSpace, import_module(f"ocm_core.features.{name}").build("cpu"))


def _milliseconds(work: Callable[[], object]) -> float:
    """Of process time for one image, the median of several repeats after a first."""
    work()
    return float(f"{1e3 * median(seconds(work) for _ in range(REPEATS)) / BATCH:.3g}")


def _step(objective: Objective[NoisyDraws]) -> None:
    losses = objective.losses(BatchRng(0, 0, BATCH))
    torch.autograd.backward(torch.stack([loss.sum() for loss in losses.values()]).sum())


def _fitting(
    experiment: Experiment, frozen: Denoiser, items: InMemory, decoder: Decoder
) -> HeadFitting:
    learned = {label: m for label, m in experiment.methods.items() if m.needs == "head"}
    baseline = torch.full((experiment.schedule.steps + 1,), 0.5)
    heads = {}
    for label, method in learned.items():
        table = None if experiment.head.form(method).published else baseline
        heads[label] = new_head(experiment, label, frozen.network, table)
    methods = {
        label: cast(LearnedMethod, covariance.build(method.kind, label, **method.options))
        for label, method in learned.items()
    }
    return HeadFitting(replace(frozen, heads=heads), methods, items, decoder)


@torch.no_grad()
def _evaluation(denoiser: Denoiser, items: InMemory) -> None:
    denoiser.predict(items.x0, denoiser.schedule.steps // 2)


def _product(denoiser: Denoiser, items: InMemory) -> Callable[[], object]:
    """Without the evaluation, whose graph serves any number of probes."""
    x = items.x0.clone().requires_grad_()
    prediction = denoiser.predict(x, denoiser.schedule.steps // 2)
    return lambda: prediction.vjp(torch.ones_like(x))


if __name__ == "__main__":
    with single_thread():
        for found in asdict(image_times(load(sys.argv[1]))).items():
            print(*found)
