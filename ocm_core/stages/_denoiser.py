"""The frozen denoiser of an experiment, with the heads and moments that covariance methods need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from ocm_core.pipeline.stage import Task
from ocm_core.stages._networks import (
    needs_heads,
    needs_moments,
    new_denoiser,
    new_score,
    score_task,
    selects_heads,
    text_of,
)
from ocm_core.stages.encode import encode_tasks
from ocm_core.stages.fetch_score import FetchedScore
from ocm_core.stages.heads import Heads
from ocm_core.stages.moments import MomentsTable
from ocm_core.stages.score import TrainedScore
from ocm_core.stages.selection import SelectedHeads

if TYPE_CHECKING:
    from ocm_core.diffusion.denoiser import Denoiser
    from ocm_core.pipeline.job import Inputs
    from ocm_core.schema.experiment import Experiment


def score_tasks(experiment: Experiment, score: str) -> list[Task]:
    """Return what `load_score` takes: the network, and the prompts if it takes text."""
    prompts = encode_tasks(experiment) if text_of(experiment) else []
    return [score_task(score), *prompts]


def denoiser_tasks(
    experiment: Experiment, labels: Iterable[str], scores: Iterable[str] | None = None
) -> list[Task]:
    """Return what `load_denoiser` takes for these methods, for all scores by default."""
    wanted, tasks = list(labels), []
    heads = SelectedHeads if selects_heads(experiment) else Heads
    for score in experiment.network.scores if scores is None else scores:
        tasks += score_tasks(experiment, score)
        tasks += [MomentsTable.task(score)] if needs_moments(experiment, wanted) else []
        tasks += [heads.task(score)] if needs_heads(experiment, wanted) else []
    return tasks


def load_score(job: Inputs, score: str) -> Denoiser:
    """Load the frozen score network; on a GPU it runs in TF32."""
    from ocm_core import networks
    from ocm_core.precision import set_precision
    from ocm_core.stages._training import frozen

    set_precision()
    if score == "exact":
        network = new_score(job.experiment, score)
    else:
        artifact = job.find(FetchedScore) or job.take(TrainedScore, score)
        network = networks.load(
            partial(new_score, job.experiment, score), artifact.weights, job.device
        )
    if text_of(job.experiment):
        import_module("ocm_core.stages._prompts").attach(job, network)
    return new_denoiser(job.experiment, frozen(network, job.device))


def load_denoiser(job: Inputs, score: str, labels: Iterable[str] = ()) -> Denoiser:
    """Load the score network with the heads of `labels`, and the moments that are at hand."""
    denoiser = load_score(job, score)
    needing = [label for label in labels if job.experiment.methods[label].needs == "head"]
    heads = {}
    if needing:
        artifact = job.find(SelectedHeads, score) or job.take(Heads, score)
        heads = artifact.load(job.experiment, denoiser.network, needing, job.device)
    moments = job.find(MomentsTable, score)
    table = None if moments is None else moments.one_minus_gamma(job.device)
    return replace(denoiser, heads=heads, moments=table)
