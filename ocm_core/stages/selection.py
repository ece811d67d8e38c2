"""Choose each method's head among those that training has kept, by the distance of a few samples.

As in the paper: 2,048 samples along all timesteps for every candidate, in the feature space of the
experiment. Processes share the candidates; what is measured survives a kill.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ocm_core.errors import OcmError
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.schema.block import Params, require
from ocm_core.schema.experiment import BestFrechetHeads
from ocm_core.stages._networks import (
    MODEL_KEYS,
    family_modules,
    methods_with_heads,
    score_task,
    selects_heads,
    text_of,
)
from ocm_core.stages.encode import VAE, encode_tasks, latent_modules
from ocm_core.stages.heads import Heads
from ocm_core.stages.reference import SPACE_TASKS, Reference, feature_modules

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from ocm_core.diffusion.denoiser import Denoiser
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment


def _parts(experiment: Experiment) -> list[str]:
    selected = selects_heads(experiment) and methods_with_heads(experiment)
    return list(experiment.network.scores) if selected else []


def _takes(experiment: Experiment, part: str) -> list[Task]:
    return [
        score_task(part),
        *(encode_tasks(experiment) if text_of(experiment) else []),
        Heads.task(part),
        *([Reference.task(experiment.features.space)] if experiment.features else []),
        *SPACE_TASKS,
        *VAE,
    ]


def _work(experiment: Experiment, part: str) -> Work:
    settings = _rule(experiment)
    steps, rows = settings.nfe or experiment.schedule.steps, 1 + (settings.guidance != 1.0)
    return Work(float(len(candidates(experiment)) * settings.samples * steps * rows))


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=_parts,
    takes=_takes,
    reads=(
        *MODEL_KEYS,
        *("head", "train.selection", "train.heads", "features"),
        *("sample.clip", "sample.guidance", "sample.execution"),
    ),
    methods=methods_with_heads,
    plugins=lambda experiment, part: [
        *family_modules(experiment, [part]),
        *feature_modules(experiment)[:1],
        "ocm_core.diffusion.kernels.ddpm",
        *latent_modules(experiment),
    ],
    shared=True,
    gpu=True,
    memory=16_000,
    work=_work,
)


class SelectedHeads(Heads):
    """The chosen head of every method, and every distance that was measured."""

    @property
    def distances(self) -> Path:
        return self.folder / "selection.json"


class Candidate(NamedTuple):
    """A method's head after so many iterations."""

    label: str
    iteration: int

    def file(self, folder: Path) -> Path:
        """Return where its distance is kept until all are measured."""
        return folder / f"{self.label}-{self.iteration}.safetensors"


def run(job: Job) -> None:
    from ocm_core.distributed import current_rank
    from ocm_core.io.state_file import load_state

    rank, wanted = current_rank(), candidates(job.experiment)
    missing = rank.agreed(lambda: [c for c in wanted if load_state(c.file(job.state)) is None])
    _measure(job, list(rank.mine(missing)))
    rank.wait()
    if rank.is_first:
        distances = {candidate: _distance(candidate.file(job.state)) for candidate in wanted}
        chosen = best(distances)
        _save(job, chosen, distances)
        job.note(iterations=chosen)


def candidates(experiment: Experiment) -> list[Candidate]:
    """Return every kept head of every method."""
    settings = experiment.train.heads
    every = require(settings.keep_every)
    kept = range(every, settings.iterations + 1, every)
    labels = methods_with_heads(experiment)
    return [Candidate(label, iteration) for label in labels for iteration in kept]


def best(distances: Mapping[Candidate, float]) -> dict[str, int]:
    """Return the iteration of least distance by method; of equals the earliest."""
    ordered = sorted(distances, key=lambda candidate: (distances[candidate], candidate.iteration))
    return {candidate.label: candidate.iteration for candidate in reversed(ordered)}


def _measure(job: Job, mine: list[Candidate]) -> None:
    from ocm_core.diffusion.denoiser import executed
    from ocm_core.features.interface import extract
    from ocm_core.io.state_file import save_state
    from ocm_core.metrics.frechet import frechet_distance
    from ocm_core.stages._denoiser import load_score
    from ocm_core.stages._images import InMemorySamples, image_reader
    from ocm_core.stages.reference import load_space

    experiment, settings = job.experiment, require(job.experiment.features)
    space = load_space(job, settings.space)
    statistics, _ = job.take(Reference, settings.space).load()
    score, images_of = load_score(job, job.part), image_reader(job)
    score = executed(score, **experiment.sample.execution.model_dump())
    kept = job.take(Heads, job.part)
    for label, iteration in job.progress(mine, f"distances of heads on the {job.part} score"):
        heads = kept.load(experiment, score.network, [label], job.device, iteration)
        drawn = InMemorySamples(_samples(job, replace(score, heads=heads), label))
        features = extract(space, images_of(drawn), settings.batch_size)
        distance = frechet_distance(real=statistics, generated=features)
        save_state(Candidate(label, iteration).file(job.state), {}, distance)


def _distance(file: Path) -> float:
    from ocm_core.io.state_file import load_state

    measured = load_state(file)
    if measured is None:
        raise OcmError(f"{file}: lost while others were measured; run it again")
    return float(measured.facts)


def _rule(experiment: Experiment) -> BestFrechetHeads:
    settings = experiment.train.selection
    if not isinstance(settings, BestFrechetHeads):
        raise ValueError("the graph has this stage only where heads are chosen by distance")
    return settings


def _save(job: Job, chosen: Mapping[str, int], distances: Mapping[Candidate, float]) -> None:
    """Save the chosen heads as training leaves them, and every distance beside them."""
    from ocm_core.io.atomic import write_text
    from ocm_core.stages._training import save_tensors

    kept, selected = job.take(Heads, job.part), SelectedHeads(job.folder)
    for label, iteration in chosen.items():
        save_tensors(selected.file(label), kept.weights(label, iteration))
    by_method = {
        label: {c.iteration: value for c, value in distances.items() if c.label == label}
        for label in chosen
    }
    record = {"chosen": chosen, "distances": by_method}
    write_text(selected.distances, json.dumps(record, indent=1, sort_keys=True) + "\n")


def _samples(job: Job, denoiser: Denoiser, label: str) -> Tensor:
    """Draw samples by DDPM on even timesteps, with the limits and guidance of the experiment."""
    import torch

    from ocm_core.rng.noise import NoiseFor
    from ocm_core.sampling.recipe import class_labels, draw_rows, of_experiment
    from ocm_core.schema.experiment import RecipeParams

    experiment, settings, device = job.experiment, _rule(job.experiment), job.device
    params = RecipeParams(kind="ddpm", clip_final_sigma=settings.clip_final_sigma)
    steps = settings.nfe or denoiser.schedule.steps
    recipe = of_experiment(experiment, params, label, steps, settings.guidance)
    drawn = []
    for first in range(0, settings.samples, settings.batch_size):
        rows = range(first, min(first + settings.batch_size, settings.samples))
        classes = class_labels(denoiser, experiment.data.classes, settings.seed, rows, device)
        sampled = draw_rows(
            recipe,
            denoiser,
            experiment.shape,
            rows,
            settings.seed,
            classes,
            device=device,
            use=NoiseFor.SELECTION,
        )
        drawn.append(sampled.x.cpu())
    return torch.cat(drawn)
