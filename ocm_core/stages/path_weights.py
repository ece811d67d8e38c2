"""Weigh trajectories against the exact density of the data: path KL and effective sample size."""

from collections.abc import Iterator
from itertools import product
from math import nan, sqrt
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ocm_core.covariance import build_all
from ocm_core.datasets.base import Density, DrawnData
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.results.measures import Measure
from ocm_core.results.table import Results, Row
from ocm_core.rng.noise import NoiseFor, SetNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.weights import Importance, weigh
from ocm_core.schema.block import Choices, Count, Seed, SetSize
from ocm_core.schema.combinations import check_timesteps, unknown_methods
from ocm_core.schema.timesteps import NamedTimesteps, TimestepsParams
from ocm_core.stages import Experiment, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.fetch_data import data_modules
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.timesteps import optimal_timesteps

WHERE = "evaluate.path_weights"
NO_DENSITY = f"{WHERE}: the density is known of data only that are drawn from it; use null"


class PathWeightsParams(Params):
    """Weights of trajectories of DDPM: so many of the model, and of the forward process."""

    methods: Choices[str]  # those that are defined for DDPM
    nfe: Choices[Count]
    timesteps: TimestepsParams = NamedTimesteps()
    points: SetSize = 4000
    seed: Seed = 12


def _check(experiment: Experiment) -> Iterator[str]:
    settings = STAGE.settings(experiment)
    if not isinstance(experiment.data, DrawnData):
        yield NO_DENSITY
    yield from unknown_methods(experiment, f"{WHERE}.methods", settings.methods)
    given = settings.timesteps, settings.nfe, settings.methods
    yield from check_timesteps(experiment, f"{WHERE}.timesteps", *given)
    if max(settings.nfe) > (last := experiment.schedule.steps):
        yield f"{WHERE}.nfe: {max(settings.nfe)} is more than schedule.steps = {last}"


def _work(experiment: Experiment, part: str) -> Work:
    """Count a pass per point and timestep, of the model's trajectories and of the forward ones."""
    settings = STAGE.settings(experiment)
    passes = sum(1 + 2 * experiment.methods[label].products for label in settings.methods)
    scores = len(experiment.network.scores)
    return Work(2 * settings.points * sum(settings.nfe) * passes * scores)


STAGE: Stage[PathWeightsParams] = Stage(
    __name__,
    "evaluate",
    params=PathWeightsParams,
    **evaluating(
        methods=lambda e, part: STAGE.settings(e).methods,
        optimal=lambda e: STAGE.settings(e).timesteps.kind == "optimal",
        stored=False,
        plugins=data_modules,
    ),
    work=_work,
    check=_check,
    measures=(
        Measure(
            *("path_kl", "path KL, nats", "lower"),
            log=True,
            about="KL divergence of the model from the forward process, over whole trajectories.",
            replicate="point",
        ),
        Measure(
            *("ess", "effective sample size", "higher"),
            about="What importance weights of the model's trajectories leave of the samples, as a"
            " share: 1 where the model is exact.",
            replicate="point",
        ),
    ),
)


class PathWeights(ResultsTable):
    """Rows of the measures `path_kl` and `ess`."""


class WeighedModel(NamedTuple):
    """A model with its data: x_0 are draws of them."""

    model: Denoiser
    truth: Density
    x0: Tensor
    seed: int

    def rows(self, recipe: Recipe, **place: Any) -> Iterator[Row]:
        """Yield the measures of a recipe."""
        log_w = self._log_weights(recipe, NoiseFor.FORWARD, self.x0)
        error = float(log_w.std()) / sqrt(len(log_w))
        yield Row("path_kl", float(log_w.mean()), error, **place)
        log_w = self._log_weights(recipe, NoiseFor.PATHS)
        diverged = bool(log_w.isnan().any())
        found = (nan, None) if diverged else Importance.of(log_w)[1:3]
        yield Row("ess", *found, **place)

    def _log_weights(self, recipe: Recipe, use: NoiseFor, x0: Tensor | None = None) -> Tensor:
        shape, device = (len(self.x0), self.x0.shape[1]), self.x0.device
        noise = SetNoise(self.seed, shape, device, use)
        return weigh(recipe, self.model, noise, x0=x0).log_weights(self.truth.log_density)


def run(job: Job) -> None:
    """Weigh trajectories of every score and method at every nfe."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    truth = cast(DrawnData, experiment.data).density
    points = truth.draw(settings.points, stream(Stream.FORWARD_POINTS, settings.seed))
    x0 = torch.from_numpy(points).float().to(job.device)
    methods, rule, rows = build_all(experiment.methods), settings.timesteps, list[Row]()
    for score in experiment.network.scores:
        weighed = WeighedModel(load_denoiser(job, score, methods), truth, x0, settings.seed)
        schedule, optimal = weighed.model.schedule, optimal_timesteps(job, score)
        cells = [*product(methods, settings.nfe)]
        for label, nfe in job.progress(cells, f"weights of trajectories, {score} score"):
            visited = rules.build(rule, schedule, nfe, label, optimal)
            place: Any = {"score": score, "method": label, "timesteps": rule.kind, "nfe": nfe}
            rows += weighed.rows(Recipe(visited, methods[label], Ddpm()), **place)
    PathWeights(job.folder).save(Results(rows))
    job.note(machine=machine_class(job))
