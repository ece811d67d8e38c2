"""The score networks that an experiment's parameters describe, untrained, and their denoisers."""

from importlib import import_module

import torch

from ocm_core import networks
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.networks.converted import denoiser_of
from ocm_core.schema.experiment import Experiment, ImageNetworkParams, TextParams


def text_of(experiment: Experiment) -> TextParams | None:
    """Return the text encoder's parameters, if the network takes text."""
    latent = experiment.encode.latent
    return latent.text if latent else None


def new_score(experiment: Experiment, score: str, variance: float = 1.0) -> ScoreNetwork:
    """Return the exact score of the data, or an untrained network of the experiment's family."""
    schedule, params = schedules.of_experiment(experiment), experiment.network
    network: ScoreNetwork
    if score == "exact":
        module = import_module(f"ocm_core.networks.{experiment.data.kind}")
        network = module.exact_score(experiment.data, schedule)
    elif isinstance(params, ImageNetworkParams):
        network = networks.build(params.family, params.config)
        network.null_label = getattr(params, "null_class", network.null_label)
    else:
        module = import_module(f"ocm_core.networks.{params.family}")
        sizes = params.width, params.depth
        network = module.create(schedule, variance, *sizes, *experiment.shape)
    return network


def new_trial(experiment: Experiment, score: str) -> ScoreNetwork:
    """Return an untrained network to time and to count, with blank prompts if it takes text."""
    network = new_score(experiment, score)
    if text := text_of(experiment):
        blank = {name: torch.zeros(1, *shape) for name, shape in text.arrays.items()}
        network.prompts = import_module("ocm_core.networks.diffusers").Prompts(blank)
    return network


def new_denoiser(experiment: Experiment, network: ScoreNetwork) -> Denoiser:
    """Wrap the network as a predictor of ε on data in [-1, 1]."""
    params = experiment.network
    if not isinstance(params, ImageNetworkParams):
        return Denoiser(network, schedules.of_experiment(experiment))
    time = TimeConvention(params.time.shift, params.time.scale)
    trained = schedules.of_params(experiment.schedule)
    return denoiser_of(network, trained, time, params.prediction, params.range)
