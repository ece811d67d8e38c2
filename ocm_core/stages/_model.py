"""The pieces that several stages assemble: schedule, score network, heads, and their files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ocm_core.covariance._head import CovarianceHead
from ocm_core.data import store
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import Schedule
from ocm_core.networks.interface import ScoreNetwork
from ocm_core.training.moments import Moments
from ocm_core.training.state import TrainingState

if TYPE_CHECKING:
    from ocm_core.params.schema import Experiment
    from ocm_core.pipeline.job import Job

Module = TypeVar("Module", bound=nn.Module)

SCORE_FILE = "score.safetensors"
HEADS_FILE = "heads.safetensors"
MOMENTS_FILE = "moments.npz"
CURVE_FILE = "curve.json"


def schedule_of(experiment: Experiment) -> Schedule:
    return schedules.build(experiment.schedule.kind, experiment.schedule.steps)


def read_items(job: Job, split: str) -> Tensor:
    return torch.from_numpy(store.read(job.inputs["encode/all"], split))


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


def new_head(
    experiment: Experiment, network: ScoreNetwork, baseline: Tensor | None
) -> CovarianceHead:
    head = experiment.head
    return CovarianceHead(network.make_head(head.kind, **head.sizes), baseline, head.link)


def load_denoiser(job: Job, score: str, labels: Iterable[str] = ()) -> Denoiser:
    """The frozen score network, with the heads of `labels` and the moments that are at hand."""
    torch.set_num_threads(job.threads)
    experiment = job.experiment
    network = new_score(experiment, score)
    if folder := job.inputs.get(f"score/{score}"):
        network.load_state_dict(load_file(folder / SCORE_FILE))
    heads = {
        label: _load_head(job, network, score, label)
        for label in labels
        if experiment.methods[label].needs == "head"
    }
    moments = job.inputs.get(f"moments/{score}")
    return Denoiser(
        _frozen(network, job.device),
        schedule_of(experiment),
        heads=heads,
        moments=None if moments is None else torch.from_numpy(load_moments(moments).excess),
    )


def _load_head(job: Job, network: ScoreNetwork, score: str, label: str) -> nn.Module:
    weights = load_file(job.inputs[f"heads/{score}"] / HEADS_FILE)
    own = {k.removeprefix(f"{label}."): v for k, v in weights.items() if k.startswith(f"{label}.")}
    head = new_head(job.experiment, network, own.get("baseline"))
    head.load_state_dict(own)
    return _frozen(head, job.device)


def _frozen(module: Module, device: str) -> Module:
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
    (job.folder / CURVE_FILE).write_text(json.dumps(state.curve, indent=1))
    state.path(job.folder).unlink(missing_ok=True)


def load_curve(folder: Path) -> list[dict[str, float]]:
    curve: list[dict[str, float]] = json.loads((folder / CURVE_FILE).read_text())
    return curve


def save_moments(folder: Path, moments: Moments) -> None:
    temporary = folder / f"new-{MOMENTS_FILE}"
    np.savez(temporary, **vars(moments))
    temporary.replace(folder / MOMENTS_FILE)


def load_moments(folder: Path) -> Moments:
    with np.load(folder / MOMENTS_FILE) as tables:
        return Moments(**{name: np.array(tables[name]) for name in tables.files})


def label_seed(seed: int, label: str) -> int:
    """Each network starts from its own seed, whichever others are trained beside it."""
    return seed * 2**32 + crc32(label.encode())
