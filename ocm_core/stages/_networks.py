"""The score network of an experiment: its parameters, its code, and its untrained form."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from ocm_core.pipeline.stage import Task
from ocm_core.schema.experiment import (
    DiffusersNetworkParams,
    ImageNetworkParams,
    TrunkNetworkParams,
)

if TYPE_CHECKING:
    from ocm_core.diffusion.denoiser import Denoiser
    from ocm_core.diffusion.score_network import ScoreNetwork
    from ocm_core.schema.experiment import Experiment, TextParams

MODEL_KEYS = ("data", "encode.latent", "schedule", "network")  # what it takes to build a denoiser


def published_params(experiment: Experiment) -> TrunkNetworkParams:
    """Return the network's parameters in a stage that only published families have."""
    if not isinstance(experiment.network, TrunkNetworkParams):
        raise ValueError("the graph has this stage only for networks of published families")
    return experiment.network


def family_modules(experiment: Experiment, scores: list[str] | None = None) -> list[str]:
    """Return the modules of the networks that `scores` stand for, all of them by default."""
    network, modules = experiment.network, []
    for score in network.scores if scores is None else scores:
        # the exact score is a file named after the kind of data, any other one after its family
        name = experiment.data.kind if score == "exact" else network.family
        modules.append(f"ocm_core.networks.{name}")
    if isinstance(network, DiffusersNetworkParams):
        modules.append(f"ocm_core.networks.{network.adapter}")
        modules += ["ocm_core.stages._prompts"] if text_of(experiment) else []
    return sorted(set(modules))


def score_task(score: str) -> Task:
    """Return the task whose artifact holds the score network's weights."""
    return Task("fetch_score") if score == "pretrained" else Task("score", score)


def methods_with_heads(experiment: Experiment, part: str = "all") -> list[str]:
    return [label for label, method in experiment.methods.items() if method.needs == "head"]


def needs_heads(experiment: Experiment, labels: Iterable[str]) -> bool:
    return any(experiment.methods[label].needs == "head" for label in labels)


def needs_moments(experiment: Experiment, labels: Iterable[str]) -> bool:
    """Whether a method uses the table of moments, by itself or as its head's baseline."""
    methods = [experiment.methods[label] for label in labels]
    return any(
        method.needs == "moments"
        or (method.needs == "head" and experiment.head.form(method).baseline == "moments")
        for method in methods
    )


def selects_heads(experiment: Experiment) -> bool:
    """Whether heads are chosen among those that training has kept."""
    return experiment.train.selection.kind == "best_frechet"


def text_of(experiment: Experiment) -> TextParams | None:
    """Return the text encoder's parameters, if the network takes text."""
    latent = experiment.encode.latent
    return latent.text if latent else None


def new_score(experiment: Experiment, score: str, variance: float = 1.0) -> ScoreNetwork:
    """Return the exact score of the data, or an untrained network of the experiment's family."""
    from ocm_core.diffusion import schedule as schedules
    from ocm_core.networks import build

    schedule, params = schedules.of_experiment(experiment), experiment.network
    network: ScoreNetwork
    if score == "exact":
        module = import_module(f"ocm_core.networks.{experiment.data.kind}")
        network = module.exact_score(experiment.data, schedule)
    elif isinstance(params, ImageNetworkParams):
        network = build(params.family, params.config)
        network.null_label = getattr(params, "null_class", network.null_label)
    else:
        module = import_module(f"ocm_core.networks.{params.family}")
        network = module.create(params, schedule, variance)
    return network


def new_trial(experiment: Experiment, score: str) -> ScoreNetwork:
    """Return an untrained network to time and to count, with blank prompts if it takes text."""
    network = new_score(experiment, score)
    if text := text_of(experiment):
        import torch

        from ocm_core.networks.diffusers import Prompts

        network.prompts = Prompts(torch.zeros(1, text.tokens, text.width))
    return network


def new_denoiser(experiment: Experiment, network: ScoreNetwork) -> Denoiser:
    """Wrap the network as a predictor of ε on data in [-1, 1]."""
    from ocm_core.diffusion import schedule as schedules
    from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
    from ocm_core.networks.converted import denoiser_of

    params = experiment.network
    if not isinstance(params, ImageNetworkParams):
        return Denoiser(network, schedules.of_experiment(experiment))
    time = TimeConvention(params.time.shift, params.time.scale)
    trained = schedules.of_params(experiment.schedule)
    return denoiser_of(network, trained, time, params.prediction, params.range)
