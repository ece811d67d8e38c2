"""Choose each method's heads among those that training has kept, by the FID of a few samples.

As in the paper: 2,048 samples along all timesteps for every candidate, in the feature space of the
experiment. Processes share the candidates; what is measured survives a kill.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ocm_core import covariance
from ocm_core.artifacts.feature_space import load_space
from ocm_core.artifacts.heads import HEADS_FILE, kept_file, load_heads
from ocm_core.artifacts.images import image_reader
from ocm_core.artifacts.reference import load_reference
from ocm_core.artifacts.score import load_score
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import chains
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.execution import executed
from ocm_core.diffusion.gaussian import pixel_sigma_limit
from ocm_core.diffusion.guidance import guided
from ocm_core.diffusion.transition import Ddpm
from ocm_core.distributed import current_rank
from ocm_core.errors import OcmError
from ocm_core.features.interface import extract
from ocm_core.io.atomic import replacing, write_text
from ocm_core.io.state_file import load_state, save_state
from ocm_core.metrics.frechet import frechet_distance
from ocm_core.rng.noise import SampleNoise, Use, draw_labels
from ocm_core.samplers.ancestral import ancestral
from ocm_core.schema.block import require
from ocm_core.schema.experiment import BestFidHeads, Experiment

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

SELECTION_FILE = "selection.json"


class Candidate(NamedTuple):
    """A method's head after so many iterations."""

    label: str
    iteration: int

    def file(self, folder: Path) -> Path:
        """Of its distance, until all are measured."""
        return folder / f"{self.label}-{self.iteration}.safetensors"


def run(job: Job) -> None:
    rank, found = current_rank(), candidates(job.experiment)
    missing = rank.agreed(lambda: [c for c in found if load_state(c.file(job.state)) is None])
    _measure(job, list(rank.mine(missing)))
    rank.wait()
    if rank.is_first:
        fid = {candidate: _distance(candidate.file(job.state)) for candidate in found}
        chosen = best(fid)
        _save(job, chosen, fid)
        job.note(iterations=chosen)


def candidates(experiment: Experiment) -> list[Candidate]:
    settings = experiment.train.heads
    every = require(settings.keep_every)
    kept = range(every, settings.iterations + 1, every)
    return [Candidate(label, iteration) for label in experiment.methods for iteration in kept]


def best(fid: Mapping[Candidate, float]) -> dict[str, int]:
    """By method, the iteration of least FID; of equals the earliest."""
    ordered = sorted(fid, key=lambda candidate: (fid[candidate], candidate.iteration))
    return {candidate.label: candidate.iteration for candidate in reversed(ordered)}


def _measure(job: Job, mine: list[Candidate]) -> None:
    experiment, settings = job.experiment, require(job.experiment.evaluate.features)
    space = load_space(job, settings.space)
    statistics, _ = load_reference(job.inputs[f"reference/{settings.space}"])
    score, images_of = load_score(job, job.part), image_reader(job)
    score = executed(score, **experiment.sample.execution.model_dump())
    for candidate in job.progress(mine, f"FID of kept heads on the {job.part} score"):
        file = kept_file(job.inputs[f"heads/{job.part}"], candidate.iteration)
        heads = load_heads(job, score.network, file, [candidate.label])
        drawn = Drawn(_samples(job, replace(score, heads=heads), candidate.label))
        features = extract(space, images_of(drawn), settings.batch_size)
        distance = frechet_distance(real=statistics, generated=features)
        save_state(candidate.file(job.state), {}, distance)


def _distance(file: Path) -> float:
    measured = load_state(file)
    if measured is None:
        raise OcmError(f"{file}: lost while others were measured; run it again")
    return float(measured.facts)


@dataclass(frozen=True)
class Drawn:
    """Samples in memory."""

    x: Tensor

    @property
    def count(self) -> int:
        return len(self.x)

    def read(self, rows: range) -> Tensor:
        return self.x[rows.start : rows.stop]


def _samples(job: Job, denoiser: Denoiser, label: str) -> Tensor:
    """By DDPM, with the limits and the guidance of the experiment."""
    experiment, settings = job.experiment, _rule(job)
    method, steps = experiment.methods[label], denoiser.schedule.steps
    rule = covariance.build(method.kind, label, **method.options)
    limits, levels, last = experiment.sample.clip, experiment.levels, settings.last_sigma
    sigma = None if last is None or levels is None else pixel_sigma_limit(last, levels)
    how, chain = experiment.sample.guidance, chains.even(steps, settings.steps or steps)
    drawn = []
    for first in range(0, settings.samples, settings.batch_size):
        rows = range(first, min(first + settings.batch_size, settings.samples))
        classes = experiment.data.classes if denoiser.network.conditional else 0
        labels = draw_labels(settings.seed, rows, classes).to(job.device) if classes else None
        sampled = ancestral(
            guided(denoiser, settings.guidance, how.guided_channels, how.covariance),
            rule,
            chain,
            SampleNoise(
                settings.seed, rows, experiment.shape, job.device, Use.SELECTION, draws=len(chain)
            ),
            kernel=Ddpm(),
            clip=Clip(x0=limits.x0, c_max=limits.covariance),
            last_sigma=rule.last_sigma(sigma),
            label=labels,
        )
        drawn.append(sampled.x.cpu())
    return torch.cat(drawn)


def _rule(job: Job) -> BestFidHeads:
    settings = job.experiment.train.selection
    if not isinstance(settings, BestFidHeads):
        raise ValueError("the graph has this stage only where heads are chosen by FID")
    return settings


def _save(job: Job, chosen: Mapping[str, int], fid: Mapping[Candidate, float]) -> None:
    """The chosen heads in one file, as training leaves them, and every distance in another."""
    folder = job.inputs[f"heads/{job.part}"]
    weights: dict[str, Tensor] = {}
    for label, iteration in chosen.items():
        kept = load_file(kept_file(folder, iteration))
        weights |= {name: value for name, value in kept.items() if name.startswith(f"{label}.")}
    with replacing(job.folder / HEADS_FILE) as temporary:
        save_file(weights, temporary)
    distances = {
        label: {c.iteration: value for c, value in fid.items() if c.label == label}
        for label in chosen
    }
    write_text(
        job.folder / SELECTION_FILE,
        json.dumps({"chosen": chosen, "fid": distances}, indent=1, sort_keys=True) + "\n",
    )
