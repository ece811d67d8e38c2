"""The frozen denoiser of an experiment, with the heads and moments that covariance methods need."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypedDict

from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.pipeline.stage import Names
from ocm_core.stages import Experiment, Inputs, Task
from ocm_core.stages._networks import (
    MODEL_KEYS,
    load_score,
    needs_moments,
    score_modules,
    score_tasks,
    scores_of,
)
from ocm_core.stages.encode import encode_tasks
from ocm_core.stages.heads import Heads
from ocm_core.stages.moments import MomentsTable
from ocm_core.stages.selection import SelectedHeads


class Declaration(TypedDict):
    """The fields of a `Stage` that evaluates denoisers."""

    takes: Callable[[Experiment, str], list[Task]]
    reads: Names
    methods: Names
    plugins: Names
    gpu: bool
    memory: int


def evaluating(
    methods: Callable[[Experiment, str], Sequence[str]] = lambda experiment, part: (),
    *reads: str,
    scores: Callable[[Experiment, str], Sequence[str]] = scores_of,
    optimal: Callable[[Experiment], bool] = lambda experiment: False,
    stored: bool = True,
) -> Declaration:
    """Declare a stage that evaluates the denoisers of `scores` with `methods`.

    Args:
        methods: labels of the methods whose heads and moments it loads
        reads: further keys that it reads
        scores: the score of a part that is named after one, else all
        optimal: whether it visits optimal timesteps
        stored: whether it does so on the stored data set, and on a GPU
    """

    def takes(experiment: Experiment, part: str) -> list[Task]:
        chosen = scores(experiment, part)
        costs = chosen if optimal(experiment) else ()
        return [
            *(encode_tasks(experiment) if stored else ()),
            *denoiser_tasks(experiment, methods(experiment, part), chosen),
            *(Task("timesteps", score) for score in costs),
        ]

    def keys(experiment: Experiment, part: str) -> list[str]:
        learned = ("head", "train.selection") if methods(experiment, part) else ()
        return [*MODEL_KEYS, *learned, *reads]

    return {
        "takes": takes,
        "reads": keys,
        "methods": methods,
        "plugins": lambda experiment, part: score_modules(experiment, scores(experiment, part)),
        "gpu": stored,
        "memory": 16_000 if stored else 4_000,
    }


def denoiser_tasks(
    experiment: Experiment, labels: Iterable[str], scores: Iterable[str]
) -> list[Task]:
    """Return what `load_denoiser` takes for these methods and scores."""
    wanted, tasks = list(labels), []
    heads = SelectedHeads if experiment.train.selection.kind == "best_frechet" else Heads
    learned = any(experiment.methods[label].needs == "head" for label in wanted)
    for score in scores:
        tasks += score_tasks(experiment, score)
        tasks += [MomentsTable.task(score)] if needs_moments(experiment, wanted) else []
        tasks += [heads.task(score)] if learned else []
    return tasks


def load_denoiser(job: Inputs, score: str, labels: Iterable[str] = ()) -> Denoiser:
    """Load the score network with the heads of `labels`, and the moments that are at hand."""
    denoiser, heads = load_score(job, score), {}
    if needing := [label for label in labels if job.experiment.methods[label].needs == "head"]:
        artifact = job.find(SelectedHeads, score) or job.take(Heads, score)
        heads = artifact.load(job.experiment, denoiser.network, needing, job.device)
    moments = job.find(MomentsTable, score)
    table = None if moments is None else moments.one_minus_gamma(job.device)
    return replace(denoiser, heads=heads, moments=table)
