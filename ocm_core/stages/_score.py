"""The score network of an experiment, and the files of networks and their training."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import Schedule
from ocm_core.networks.interface import ScoreNetwork
from ocm_core.training.curve import save_curve
from ocm_core.training.state import TrainingState

if TYPE_CHECKING:
    from ocm_core.params.schema import Experiment
    from ocm_core.pipeline.job import Job

Module = TypeVar("Module", bound=nn.Module)

SCORE_FILE = "score.safetensors"


def schedule_of(experiment: Experiment) -> Schedule:
    return schedules.build(experiment.schedule.kind, experiment.schedule.steps)


def new_score(experiment: Experiment, score: str, variance: float = 1.0) -> ScoreNetwork:
    """The true score of the data, or an untrained network of the experiment's family."""
    schedule = schedule_of(experiment)
    network: ScoreNetwork
    if score == "true":
        module = import_module(f"ocm_core.networks.{experiment.data.kind}")
        network = module.true_score(experiment.data, schedule)
    else:
        module = import_module(f"ocm_core.networks.{experiment.network.family}")
        network = module.create(experiment.network, schedule, variance)
    return network


def load_score(job: Job, score: str) -> Denoiser:
    """The frozen score network, trained where there is something to train."""
    torch.set_num_threads(job.threads)
    network = new_score(job.experiment, score)
    if folder := job.inputs.get(f"score/{score}"):
        network.load_state_dict(load_file(folder / SCORE_FILE))
    return Denoiser(frozen(network, job.device), schedule_of(job.experiment))


def frozen(module: Module, device: str) -> Module:
    return module.to(device).eval().requires_grad_(False)


def save_networks(path: Path, networks: Mapping[str, nn.Module]) -> None:
    """One file; cloned, because networks may share tables that a file cannot."""
    tensors = {
        f"{label}.{name}" if label else name: tensor.detach().cpu().clone()
        for label, network in networks.items()
        for name, tensor in network.state_dict().items()
    }
    save_file(tensors, path)


def finish_training(job: Job, state: TrainingState) -> None:
    """Keep the moving average and the curve; the optimiser's state has served."""
    state.use_average()
    save_curve(job.folder, state.curve)
    state.path(job.folder).unlink(missing_ok=True)


def label_seed(seed: int, label: str) -> int:
    """Each network starts from its own seed, whichever others are trained beside it."""
    return seed * 2**32 + crc32(label.encode())
