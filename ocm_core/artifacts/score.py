"""The score network: built from its parameters, and loaded from where it was trained or fetched."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from safetensors.torch import load_file

from ocm_core.artifacts.trained import frozen
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.networks import build
from ocm_core.schema.experiment import TrunkNetworkParams

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

SCORE_FILE = "score.safetensors"


def schedule_of(experiment: Experiment) -> Schedule:
    return schedules.build(experiment.schedule.kind, experiment.schedule.steps)


def new_score(experiment: Experiment, score: str, variance: float = 1.0) -> ScoreNetwork:
    """The true score of the data, or an untrained network of the experiment's family."""
    schedule, params = schedule_of(experiment), experiment.network
    network: ScoreNetwork
    if score == "true":
        module = import_module(f"ocm_core.networks.{experiment.data.kind}")
        network = module.true_score(experiment.data, schedule)
    elif isinstance(params, TrunkNetworkParams):
        network = build(params.family, params.config)
    else:
        module = import_module(f"ocm_core.networks.{params.family}")
        network = module.create(params, schedule, variance)
    return network


def new_denoiser(experiment: Experiment, network: ScoreNetwork) -> Denoiser:
    params = experiment.network
    time = TimeConvention()
    if isinstance(params, TrunkNetworkParams):
        time = TimeConvention(params.time.shift, params.time.scale)
    return Denoiser(network, schedule_of(experiment), time)


def trunk(experiment: Experiment) -> TrunkNetworkParams:
    """The network's parameters, in a stage that only published families have."""
    if not isinstance(experiment.network, TrunkNetworkParams):
        raise ValueError("the graph has this stage only for networks of published families")
    return experiment.network


def load_score(job: Job, score: str) -> Denoiser:
    """The frozen score network, trained or fetched where it is not known in closed form."""
    network = new_score(job.experiment, score)
    source = "fetch_score/all" if score == "published" else f"score/{score}"
    if folder := job.inputs.get(source):
        network.load_state_dict(load_file(folder / SCORE_FILE))
    return new_denoiser(job.experiment, frozen(network, job.device))
