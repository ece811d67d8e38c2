"""Measure error bars on noisy test images: density, coverage, correlation with the errors."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from pydantic import Field

from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.errors import OcmError
from ocm_core.results.measures import Measure, of_use
from ocm_core.results.table import Row
from ocm_core.rng.batches import batches
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import BatchSize, Choices, Positive, Seed
from ocm_core.stages import Experiment, Job, Params
from ocm_core.stages._evaluation import EvaluatedModel, evaluated, evaluation
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import count_images
from ocm_core.uses import denoise as uses
from ocm_core.uses.denoise import PosteriorFit

WHERE = "evaluate.denoising"


class DenoisingParams(Params):
    """Gaussians of x_0 given images with noise σ: at the timesteps whose noise is nearest to it."""

    methods: Choices[str]  # estimates of Cov[x_0 | x_t] with a diagonal
    sigmas: Choices[Positive]
    images: Annotated[int, Field(ge=2, le=10**9)] | None = None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed = 13


def _check(experiment: Experiment, settings: DenoisingParams) -> Iterator[str]:
    for problem in uses.no_estimates(experiment, settings.methods):
        yield f"{WHERE}.methods: {problem}"
    try:
        _times(schedules.of_experiment(experiment), settings.sigmas)
    except OcmError as error:
        yield f"{WHERE}.sigmas: {error}"


def _passes(experiment: Experiment, settings: DenoisingParams) -> float:
    """Count a pass per σ; a product with the Jacobian is two."""
    products = sum(experiment.methods[label].products for label in settings.methods)
    return len(settings.sigmas) * (1 + 2 * products)


_NOISY = "test images with noise, given its σ, at the timestep t that has this noise"
STAGE = evaluation(
    __name__,
    DenoisingParams,
    "sample.clip",
    passes=_passes,
    check=_check,
    measures=(
        of_use(
            *("denoising_nll", "NLL of clean images, nats/dim", "lower"),
            about=f"Negative log density of {_NOISY}: by the Gaussian with x̂_0 and the whole"
            " covariance, from one pass. Where a variance is not positive it is β̃_{1:2}.",
        ),
        of_use(
            *("coverage", "share of pixels inside 90 % intervals"),
            about=f"How often the pixels of {_NOISY} lie inside 90 % intervals about x̂_0.",
        ),
        of_use(
            *("calibration_error", "calibration error of intervals", "lower"),
            about=f"Of {_NOISY}: |coverage - nominal|, the mean over intervals of 10, 20, …, 90 %.",
        ),
        of_use(
            *("error_correlation", "correlation of expected and actual errors", "higher"),
            about=f"Of an image's mean variance and mean squared error, over {_NOISY}.",
        ),
        Measure("denoising_floor", "share of variances at the floor", shown=False),
        Measure("psnr", "PSNR of x̂_0, dB", "higher", replicate="image", shown=False),
    ),
)


class DenoisingTable(ResultsTable):
    """Rows of densities, coverages, correlations and PSNR."""


def run(job: Job) -> None:
    """Compare what each method expects with what is true, at every noise level."""
    settings, rows = STAGE.settings(job.experiment), list[Row]()
    count = count_images(job, settings.images)
    for model in evaluated(job):
        for t in _times(model.denoiser.schedule, settings.sigmas):
            what, cut = f"t = {t}, {model.score} score", batches(count, settings.batch_size)
            fits = [_fits(model, t, batch, settings.seed) for batch in job.progress(cut, what)]
            for label in model.methods:
                found = PosteriorFit.joined(part[label] for part in fits).measures()
                place: Any = {"score": model.score, "method": label, "timesteps": str(t)}
                rows += [Row(*measure, **place) for measure in found]
    DenoisingTable(job.folder).save(rows)
    job.note(images=count, machine=machine_class(job))


def _times(schedule: Schedule, sigmas: list[float]) -> list[int]:
    """Return the timesteps whose noise is nearest to these, each once."""
    return sorted({*uses.matched_timesteps(schedule, torch.tensor(sigmas).double()).tolist()})


def _fits(model: EvaluatedModel, t: int, batch: range, seed: int) -> dict[str, PosteriorFit]:
    """Return how each method's Gaussian fits noisy images."""
    x0, label = model.read(batch)
    noise = SampleNoise(seed, batch, tuple(x0.shape[1:]), x0.device, NoiseFor.DEVIATION, t)
    x = q_sample(x0, noise.normal(), *model.denoiser.schedule.marginal(t))
    given = model.denoiser, model.methods, x, t, noise, label, model.clip
    return {name: uses.fit(found, x0) for name, found in uses.posteriors(*given).items()}
