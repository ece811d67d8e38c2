"""Evaluations of denoisers: what they declare alike, and the models that they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from ocm_core.covariance import build_all
from ocm_core.covariance.interface import Clip, CovarianceMethod
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.timesteps import Timesteps, TimestepsByMethod
from ocm_core.pipeline.stage import Names
from ocm_core.results.measures import Measure
from ocm_core.schema.combinations import check_timesteps, unknown_methods
from ocm_core.schema.timesteps import TimestepsParams
from ocm_core.shapes import Batch, Labels
from ocm_core.stages import Experiment, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating
from ocm_core.stages.encode import read_rows
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.timesteps import optimal_timesteps
from ocm_core.store.reader import Rows

Settings = TypeVar("Settings", bound=Params)


def evaluation(
    module: str,
    params: type[Settings],
    *reads: str,
    passes: Callable[[Experiment, Settings], float],
    methods: Names | None = None,
    check: Callable[[Experiment, Settings], Iterable[str]] = lambda experiment, settings: (),
    measures: tuple[Measure, ...] = (),
    stored: bool = True,
    plugins: Names = lambda experiment, part: (),
    **more: Any,
) -> Stage[Settings]:
    """Declare an evaluation of every score with the `methods`, `nfe` and `timesteps` of its block.

    It works on test images, or on as many `points` of a density, with so many `passes` for each.
    """

    def settings(experiment: Experiment) -> Any:
        return stage.settings(experiment)

    def labels(experiment: Experiment, part: str) -> list[str]:
        return getattr(settings(experiment), "methods", [])

    def problems(experiment: Experiment) -> Iterator[str]:
        where, block = f"evaluate.{stage.name}", settings(experiment)
        if not hasattr(block, "points") and "test" not in experiment.data.count_items():
            yield f"{where}: measured on test images, and the data have none; use null"
        yield from unknown_methods(experiment, f"{where}.methods", labels(experiment, ""))
        if hasattr(block, "nfe") and "" in (named := _rules(block)):
            given = named[""], block.nfe, block.methods
            yield from check_timesteps(experiment, f"{where}.timesteps", *given)
            if max(block.nfe) > (last := experiment.schedule.steps):
                yield f"{where}.nfe: {max(block.nfe)} is more than schedule.steps = {last}"
        yield from check(experiment, block)

    def work(experiment: Experiment, part: str) -> Work:
        block = settings(experiment)
        items = getattr(block, "points", None) or block.images
        items = items or experiment.data.count_items()["test"]
        return Work(items * passes(experiment, block) * len(experiment.network.scores))

    fields = evaluating(
        *reads,
        methods=methods or labels,
        plugins=plugins,
        optimal=lambda e: any(r.kind == "optimal" for r in _rules(settings(e)).values()),
        stored=stored,
    )
    fields |= {"work": work, "check": problems, "measures": measures, **more}
    stage = Stage(module, "evaluate", params, **fields)
    return stage


def passes_of(experiment: Experiment, labels: Iterable[str]) -> float:
    """Return the passes of a step by each of these methods; a product with the Jacobian is two."""
    return sum(1 + 2 * experiment.methods[label].products for label in labels)


def _rules(block: Params) -> Mapping[str, TimestepsParams]:
    """Return the rules for timesteps of a block; one that stands alone has no name."""
    rules: Any = getattr(block, "timesteps", {})
    return rules if isinstance(rules, dict) else {"": rules}


@dataclass(frozen=True)
class EvaluatedModel:
    """A score of an experiment with the methods that it is evaluated with."""

    job: Job
    score: str
    methods: Mapping[str, CovarianceMethod]

    @cached_property
    def denoiser(self) -> Denoiser:
        """Return the score network with the heads and tables of the methods."""
        return load_denoiser(self.job, self.score, self.methods)

    @cached_property
    def optimal(self) -> TimestepsByMethod:
        """Return the optimal timesteps that the job takes."""
        return optimal_timesteps(self.job, self.score)

    @property
    def clip(self) -> Clip:
        """Return the limits of samples."""
        limits = self.job.experiment.sample.clip
        return Clip(x0=limits.x0, c_max=limits.covariance)

    def timesteps(self, rule: TimestepsParams, label: str, nfe: int) -> Timesteps:
        """Return the timesteps of a rule; `label` is the method that optimal ones are for."""
        schedule = schedules.of_experiment(self.job.experiment)
        return rules.build(rule, schedule, nfe, label, self.optimal)

    def read(self, rows: Rows) -> tuple[Batch, Labels]:
        """Read test images, with their labels if the network takes any."""
        return read_rows(self.job, "test", rows, self.denoiser.network.conditional)


def evaluated(job: Job) -> Iterator[EvaluatedModel]:
    """Yield the model of every score."""
    methods = build_all(job.experiment.methods)
    return (EvaluatedModel(job, score, methods) for score in job.experiment.network.scores)
