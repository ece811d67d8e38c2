"""The score network of an experiment, and the files of networks and their training."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from ocm_core.diffusion.schedule import Schedule
from ocm_core.diffusion.score_network import ScoreNetwork
from ocm_core.distributed import current_rank
from ocm_core.networks import build
from ocm_core.schema.experiment import TrunkNetworkParams
from ocm_core.training.curve import save_curve
from ocm_core.training.state import TrainingState

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

Module = TypeVar("Module", bound=nn.Module)

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
    torch.set_num_threads(job.threads)
    network = new_score(job.experiment, score)
    source = "fetch_score/all" if score == "published" else f"score/{score}"
    if folder := job.inputs.get(source):
        network.load_state_dict(load_file(folder / SCORE_FILE))
    return new_denoiser(job.experiment, frozen(network, job.device))


def frozen(module: Module, device: str) -> Module:
    return module.to(device).eval().requires_grad_(False)


def save_networks(path: Path, networks: Mapping[str, nn.Module]) -> None:
    """One file; cloned, because networks may share tables that a file cannot."""
    if not current_rank().is_first:
        return
    tensors = {
        f"{label}.{name}" if label else name: tensor.detach().cpu().clone()
        for label, network in networks.items()
        for name, tensor in network.state_dict().items()
    }
    save_file(tensors, path)


def finish_training(job: Job, state: TrainingState) -> None:
    """Keep the moving average and the curve; the optimiser's state has served."""
    state.use_average()
    if not current_rank().is_first:
        return
    save_curve(job.folder, state.curve)
    state.path(job.folder).unlink(missing_ok=True)
