"""The score network: built from its parameters, and loaded from where it was trained or fetched."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from ocm_core.artifacts.trained import frozen
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.networks import build
from ocm_core.networks.converted import denoiser_of
from ocm_core.precision import set_precision
from ocm_core.schema.experiment import ImageNetworkParams, TextParams, TrunkNetworkParams

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

SCORE_FILE = "score.safetensors"


def schedule_of(experiment: Experiment) -> Schedule:
    return schedules.of_experiment(experiment)


def new_score(experiment: Experiment, score: str, variance: float = 1.0) -> ScoreNetwork:
    """The true score of the data, or an untrained network of the experiment's family."""
    schedule, params = schedule_of(experiment), experiment.network
    network: ScoreNetwork
    if score == "true":
        module = import_module(f"ocm_core.networks.{experiment.data.kind}")
        network = module.true_score(experiment.data, schedule)
    elif isinstance(params, ImageNetworkParams):
        network = build(params.family, params.config)
        network.null_label = getattr(params, "null_class", network.null_label)
    else:
        module = import_module(f"ocm_core.networks.{params.family}")
        network = module.create(params, schedule, variance)
    return network


def new_trial(experiment: Experiment, score: str) -> ScoreNetwork:
    """An untrained network to time and to count, with blank prompts where it takes text."""
    network = new_score(experiment, score)
    if text := text_of(experiment):
        module = import_module("ocm_core.networks.prompts")
        network.prompts = module.Prompts(torch.zeros(1, text.tokens, text.width))
    return network


def new_denoiser(experiment: Experiment, network: ScoreNetwork) -> Denoiser:
    """With the conventions of the network taken off it."""
    params = experiment.network
    if not isinstance(params, ImageNetworkParams):
        return Denoiser(network, schedule_of(experiment))
    time = TimeConvention(params.time.shift, params.time.scale)
    trained = schedules.of_params(experiment.schedule)
    return denoiser_of(network, trained, time, params.prediction, params.range)


def text_of(experiment: Experiment) -> TextParams | None:
    """Of a network that takes text; its prompts are in the store of `encode`."""
    latent = experiment.encode.latent
    return latent.text if latent else None


def trunk(experiment: Experiment) -> TrunkNetworkParams:
    """The network's parameters, in a stage that only published families have."""
    if not isinstance(experiment.network, TrunkNetworkParams):
        raise ValueError("the graph has this stage only for networks of published families")
    return experiment.network


def load_score(job: Job, score: str) -> Denoiser:
    """The frozen score network, trained or fetched where it is not known in closed form.

    On a GPU in TF32, until somebody asks for another precision.
    """
    set_precision()
    network = new_score(job.experiment, score)
    source = "fetch_score/all" if score == "published" else f"score/{score}"
    if folder := job.inputs.get(source):
        network.load_state_dict(load_file(folder / SCORE_FILE))
    if text_of(job.experiment):
        import_module("ocm_core.artifacts.prompts").attach(job, network)
    return new_denoiser(job.experiment, frozen(network, job.device))
