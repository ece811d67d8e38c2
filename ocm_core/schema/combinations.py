"""Combinations of parameters that make no sense, which no single key can tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ocm_core.errors import unknown

if TYPE_CHECKING:
    from ocm_core.schema.experiment import Experiment


def impossible(experiment: Experiment) -> Iterator[str]:
    """What no single key can tell: one line per problem, beginning with the key."""
    yield from _samplers(experiment)
    yield from _training(experiment)
    yield from _likelihood(experiment)
    yield from _features(experiment)


def _features(experiment: Experiment) -> Iterator[str]:
    features = experiment.evaluate.features
    if features is None and experiment.data.levels is not None:
        yield "evaluate.features: null, but images are compared in some space; name one"
    if features and features.reference and features.space != "inception":
        yield (
            f"evaluate.features.reference: {features.reference!r} has statistics of Inception's "
            f"features, and evaluate.features.space is {features.space!r}; use 'inception' or null"
        )
    if features and features.space == "classifier" and not experiment.data.classes:
        yield (
            "evaluate.features.space: 'classifier' is trained on labels, and "
            f"data.kind = {experiment.data.kind!r} has none; use 'efficientnet_lite0'"
        )


def _samplers(experiment: Experiment) -> Iterator[str]:
    if experiment.sample.guided and not experiment.network.conditional:
        yield (
            "sample.samplers: guidance needs a network with class labels, and network.family = "
            f"{experiment.network.family!r} has none; use guidance: [1.0]"
        )
    for label, sampler in experiment.sample.samplers.items():
        where = f"sample.samplers.{label}"
        for steps in sampler.steps:
            if steps > experiment.schedule.steps:
                yield (
                    f"{where}.steps: {steps} is more than schedule.steps = "
                    f"{experiment.schedule.steps}; a chain cannot have more steps than the schedule"
                )
        for method in sampler.methods:
            if method not in experiment.methods:
                yield f"{where}.methods: {unknown(method, experiment.methods)}"
        if sampler.rederive_eps and sampler.kind == "ddpm":
            yield f"{where}.rederive_eps: a ddpm step has no noise prediction; use false"
        if sampler.last_sigma and experiment.levels is None:
            yield f"{where}.last_sigma: in grey levels, and points and latents have none; use null"


def _training(experiment: Experiment) -> Iterator[str]:
    """A network that is trained here needs its settings."""
    latent, features = experiment.encode.latent, experiment.evaluate.features
    trained = {
        "score": "learned" in experiment.network.scores,
        "vae": latent is not None and latent.vae.origin == "trained",
        "classifier": features is not None and features.space == "classifier",
    }
    for name, needed in trained.items():
        if needed and getattr(experiment.train, name) is None:
            yield f"train.{name}: null, but the experiment trains it; give its settings"
    if "published" in experiment.network.scores and experiment.network.checkpoint is None:
        yield "network.checkpoint: null, but network.scores has 'published'; name the checkpoint"


def _likelihood(experiment: Experiment) -> Iterator[str]:
    settings = experiment.evaluate.likelihood
    if settings is None:
        return
    where = "evaluate.likelihood"
    for label in settings.methods:
        if label not in experiment.methods:
            yield f"{where}.methods: {unknown(label, experiment.methods)}"
    for label, steps in settings.fewer.items():
        if label not in settings.methods:
            yield f"{where}.fewer: {unknown(label, settings.methods)}"
        if not set(steps) <= set(settings.steps):
            yield f"{where}.fewer.{label}: {steps}: not all of them are in {where}.steps"
