"""Weigh trajectories against the exact density of the data: path KL and effective sample size."""

from itertools import product
from math import nan
from typing import Any, cast

import torch

from ocm_core.datasets.base import DrawnData
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.metrics import mean_and_error
from ocm_core.results.measures import Measure
from ocm_core.results.table import Row
from ocm_core.rng.noise import NoiseFor, SetNoise
from ocm_core.rng.streams import Stream, stream
from ocm_core.sampling.recipe import Recipe
from ocm_core.sampling.weights import Importance, LogWeights, weigh
from ocm_core.schema.block import Choices, Count, Seed, SetSize
from ocm_core.schema.timesteps import NamedTimesteps, TimestepsParams
from ocm_core.stages import Job, Params
from ocm_core.stages._evaluation import evaluated, evaluation, passes_of
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.fetch_data import data_modules

WHERE = "evaluate.path_weights"
NO_DENSITY = f"{WHERE}: the density is known of data only that are drawn from it; use null"


class PathWeightsParams(Params):
    """Weights of trajectories of DDPM: so many of the model, and of the forward process."""

    methods: Choices[str]  # those that are defined for DDPM
    nfe: Choices[Count]
    timesteps: TimestepsParams = NamedTimesteps()
    points: SetSize = 4000
    seed: Seed = 12


STAGE = evaluation(
    __name__,
    PathWeightsParams,
    # of the model's trajectories, and of the forward ones
    passes=lambda e, s: 2 * sum(s.nfe) * passes_of(e, s.methods),
    check=lambda e, s: [NO_DENSITY] * (not isinstance(e.data, DrawnData)),
    stored=False,
    plugins=data_modules,
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


def run(job: Job) -> None:
    """Weigh trajectories of every score and method at every nfe."""
    settings, rows = STAGE.settings(job.experiment), list[Row]()
    truth, rule = cast(DrawnData, job.experiment.data).density, settings.timesteps
    points = truth.draw(settings.points, stream(Stream.FORWARD_POINTS, settings.seed))
    x0 = torch.from_numpy(points).float().to(job.device)

    def log_weights(recipe: Recipe, model: Denoiser, use: NoiseFor) -> LogWeights:
        """Weigh trajectories of the forward process, which begin with data, or of the model."""
        noise = SetNoise(settings.seed, (len(x0), x0.shape[1]), job.device, use)
        given = x0 if use is NoiseFor.FORWARD else None
        return weigh(recipe, model, noise, x0=given).log_weights(truth.log_density)

    for model in evaluated(job):
        cells = [*product(model.methods, settings.nfe)]
        for label, nfe in job.progress(cells, f"weights of trajectories, {model.score} score"):
            recipe = Recipe(model.timesteps(rule, label, nfe), model.methods[label], Ddpm())
            place: Any = {"score": model.score, "method": label, "timesteps": rule.kind}
            forward = mean_and_error(log_weights(recipe, model.denoiser, NoiseFor.FORWARD))
            rows.append(Row("path_kl", *forward, nfe=nfe, **place))
            ess = _ess(log_weights(recipe, model.denoiser, NoiseFor.PATHS))
            rows.append(Row("ess", *ess, nfe=nfe, **place))
    PathWeights(job.folder).save(rows)
    job.note(machine=machine_class(job))


def _ess(log_w: LogWeights) -> tuple[float, float | None]:
    """Return the effective sample size and its error; NaN of trajectories that diverged."""
    return (nan, None) if bool(log_w.isnan().any()) else Importance.of(log_w)[1:3]
