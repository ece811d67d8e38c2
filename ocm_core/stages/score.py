"""Train the score network of an experiment that has no public checkpoint."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from ocm_core import networks
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.networks.of_experiment import new_denoiser, new_score
from ocm_core.precision import set_precision
from ocm_core.rng.streams import seed_torch
from ocm_core.stages import Artifact, Experiment, Job, Params, Stage, Work, _networks, require
from ocm_core.stages.encode import encode_tasks
from ocm_core.training.batches import DroppedLabels
from ocm_core.training.score_matching import ScoreMatching


def _files(experiment: Experiment) -> list[str]:
    """Return the files of weights that are taken as they are, or that training starts from."""
    settings = experiment.train.score
    return [file for file in (settings.weights, settings.start) if file] if settings else []


def _work(experiment: Experiment, part: str) -> Work:
    settings = require(experiment.train.score)
    passes = 0.0 if settings.weights else settings.passes
    return Work(passes, precision=settings.precision)


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=lambda experiment: ["trained"] * ("trained" in experiment.network.scores),
    takes=lambda experiment, part: encode_tasks(experiment),
    reads=(*_networks.MODEL_KEYS, "train.score"),
    plugins=_networks.family_modules,
    user_files=_files,
    shared=True,
    gpu=True,
    work=_work,
)


class TrainedScore(Artifact):
    """The weights of the score network, and its loss curve."""


def run(job: Job) -> None:
    """Train the network, or copy weights that were trained before."""
    experiment, settings = job.experiment, require(job.experiment.train.score)
    if settings.weights:
        _copy(job, _present("weights", settings.weights))
        return
    items, variance = _networks.open_training_set(job, settings.batch_size)
    precision = set_precision(settings.precision)
    seed_torch(settings.seed, "score")
    make = partial(new_score, experiment, job.part, variance)
    start = settings.start and _present("start", settings.start)
    network = networks.load(make, start) if start else make()
    network.train().requires_grad_(True).to(job.device)
    denoiser = replace(new_denoiser(experiment, network), precision=precision)
    objective = ScoreMatching(denoiser, DroppedLabels(items, network), Decoder(experiment.levels))
    _networks.train(job, objective, settings, "score network")
    networks.save_networks(job.folder / _networks.SCORE_FILE, {"": network})
    job.note(parameters=sum(p.numel() for p in network.parameters()))


def _copy(job: Job, weights: Path) -> None:
    """Copy weights that were trained before, once they are seen to fit the network."""
    network = networks.load(partial(new_score, job.experiment, job.part), weights)
    if current_rank().is_first:
        shutil.copyfile(weights, job.folder / _networks.SCORE_FILE)
        curve = weights.with_name("curve.json")
        (job.folder / curve.name).write_text(curve.read_text() if curve.exists() else "[]\n")
    job.note(parameters=sum(p.numel() for p in network.parameters()), weights=str(weights))


def _present(key: str, name: str) -> Path:
    """Return a file of weights that a parameter names; it must be there."""
    if not (file := Path(name)).is_file():
        raise OcmError(
            f"train.score.{key}: {file}: no such file; `dvc pull {file.parent}.dvc` brings what the"
            " repository keeps; null trains the network anew"
        )
    return file
