"""Choose each method's head among those that training kept, by the distance of a few samples."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, cast

import torch
from safetensors.torch import load_file

from ocm_core.diffusion.denoiser import Denoiser, executed
from ocm_core.features import extract
from ocm_core.io.atomic import write_tensors, write_text
from ocm_core.metrics.frechet import frechet_distance
from ocm_core.pipeline.pieces import PartialResult, computed
from ocm_core.rng.batches import batches
from ocm_core.rng.noise import NoiseFor
from ocm_core.sampling.recipe import class_labels, draw_rows, of_experiment
from ocm_core.schema.experiment import BestFrechetHeads, RecipeParams
from ocm_core.stages import Experiment, Job, MadeOf, Params, Stage, Work, require
from ocm_core.stages._networks import (
    MODEL_KEYS,
    family_modules,
    made_with,
    methods_with_heads,
    score_tasks,
    spectrum_tasks,
)
from ocm_core.stages.fetch_vae import VAE, image_reader, vae_modules
from ocm_core.stages.heads import Heads, fitted, load_denoiser
from ocm_core.stages.reference import SPACE_TASKS, Reference, load_space

Candidate = tuple[str, int]  # a method, and after how many iterations its head was kept


def _parts(experiment: Experiment) -> list[str]:
    selected = experiment.train.selection.kind == "best_frechet" and methods_with_heads(experiment)
    return list(experiment.network.scores) if selected else []


def _work(experiment: Experiment, part: str) -> Work:
    settings = cast(BestFrechetHeads, experiment.train.selection)
    steps, rows = settings.nfe or experiment.schedule.steps, 1 + (settings.guidance != 1.0)
    return Work(len(candidates(experiment)) * settings.samples * steps * rows)


STAGE: Stage[Params] = Stage(
    __name__,
    "train",
    parts=_parts,
    takes=lambda e, part: [
        *(*score_tasks(e, part), Heads.task(part), *map(Reference.task, e.spaces[:1])),
        *(*SPACE_TASKS, *VAE, *spectrum_tasks(e, methods_with_heads(e), part)),
    ],
    reads=(
        *MODEL_KEYS,
        *("head", "train.selection", "train.heads", "features"),
        *("sample.clip", "sample.guidance", "sample.execution"),
    ),
    methods=methods_with_heads,
    plugins=lambda experiment, part: [
        *family_modules(experiment, part),
        *(f"ocm_core.features.{space}" for space in experiment.spaces[:1]),
        "ocm_core.diffusion.kernels.ddpm",
        *vae_modules(experiment),
    ],
    shared=True,
    gpu=True,
    work=_work,
)


class SelectedHeads(Heads):
    """The chosen head of every method, and every distance that was measured, in a piece each."""


def run(job: Job) -> None:
    """Measure every candidate, and save the best head of each method."""
    experiment, settings = job.experiment, require(job.experiment.features)
    space = load_space(job, settings.space)
    statistics, _ = job.take(Reference, settings.space).load()
    score, images_of = load_denoiser(job, job.part), image_reader(job)
    score = executed(score, **experiment.sample.execution.model_dump())
    kept, wanted = job.take(Heads, job.part), candidates(experiment)

    def measure(candidate: Candidate) -> PartialResult:
        label, iteration = candidate
        heads = kept.load(job, score.network, [label], iteration)
        drawn = _samples(job, replace(score, heads=heads), label)
        features = extract(space, images_of(drawn), settings.batch_size)
        return {}, frechet_distance(real=statistics, generated=features)

    named = {f"{label}-{iteration}": (label, iteration) for label, iteration in wanted}
    what = f"distances of heads on the {job.part} score"
    if states := computed(job, named, measure, what, partial(_made_of, job)):
        distances = {c: float(state.facts) for c, state in zip(wanted, states, strict=True)}
        trained = fitted(experiment, "train")
        _save(job, distances, [m for m in methods_with_heads(experiment) if m not in trained])


def _made_of(job: Job, candidate: Candidate) -> MadeOf:
    """Return all that the distance of a candidate depends on, and nothing of other heads."""
    (label, iteration), experiment, sample = candidate, job.experiment, job.experiment.sample
    heads, folder = Heads.task(job.part), job.folders[Heads.task(job.part)]
    own = Heads(folder).file(label, iteration).relative_to(folder).as_posix()
    inputs = job.contents(heads, own.__eq__)
    for task in (Reference.task(experiment.spaces[0]), *SPACE_TASKS, *VAE):
        inputs |= job.contents(task) if task in job.folders else {}
    facts = {
        "selection": experiment.train.selection.model_dump(mode="json"),
        "features": require(experiment.features).model_dump(mode="json"),
        "sample": sample.model_dump(mode="json", include={"clip", "guidance", "execution"}),
    }
    given = job, __name__, job.part, label, facts
    return made_with(*given, False, inputs, STAGE.plugins(experiment, job.part))


def candidates(experiment: Experiment) -> list[Candidate]:
    """Return every kept head of every method whose head is trained."""
    every, last = require(experiment.train.heads.keep_every), experiment.train.heads.iterations
    return [*product(fitted(experiment, "train"), range(every, last + 1, every))]


def best(distances: Mapping[Candidate, float]) -> dict[str, int]:
    """Return the iteration of least distance by method; of equals the earliest."""
    return dict(sorted(distances, key=lambda one: (distances[one], one[1]), reverse=True))


def _save(job: Job, distances: Mapping[Candidate, float], solved: Iterable[str] = ()) -> None:
    """Save the best heads as training leaves them, those solved for, and every distance."""
    kept, chosen = job.take(Heads, job.part), best(distances)
    for label, iteration in [*chosen.items(), *((label, None) for label in solved)]:
        write_tensors(SelectedHeads(job.folder).file(label), load_file(kept.file(label, iteration)))
    by_method = {
        label: {iteration: value for (m, iteration), value in distances.items() if m == label}
        for label in chosen
    }
    record = json.dumps({"chosen": chosen, "distances": by_method}, indent=1, sort_keys=True)
    write_text(job.folder / "selection.json", f"{record}\n")
    job.note(iterations=chosen)


def _samples(job: Job, denoiser: Denoiser, label: str) -> torch.Tensor:
    """Draw samples by DDPM on even timesteps, with the limits and guidance of the experiment."""
    experiment, device = job.experiment, job.device
    settings = cast(BestFrechetHeads, experiment.train.selection)
    params = RecipeParams(kind="ddpm", clip_final_sigma=settings.clip_final_sigma)
    steps, shape, seed = settings.nfe or denoiser.schedule.steps, experiment.shape, settings.seed
    recipe = of_experiment(experiment, params, label, steps, settings.guidance)
    drawn, ranges = [], batches(settings.samples, settings.batch_size)
    with job.meter(len(ranges) * steps, f"samples of {label}, network passes") as advance:
        given: Any = {"device": device, "use": NoiseFor.SELECTION, "watch": lambda *_: advance()}
        for rows in ranges:
            classes = class_labels(denoiser, experiment.data.classes, seed, rows, device)
            drawn.append(draw_rows(recipe, denoiser, shape, rows, seed, classes, **given).x.cpu())
    return torch.cat(drawn)
