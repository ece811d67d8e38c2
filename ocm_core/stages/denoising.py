"""Measure error bars on noisy test images: density, coverage, correlation with the errors."""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Annotated, Any

import torch
from pydantic import Field

from ocm_core.covariance import build_all, class_of
from ocm_core.covariance.interface import Clip, CovarianceMethod
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.schedule import Schedule, q_sample
from ocm_core.errors import OcmError
from ocm_core.results.measures import USES, Measure
from ocm_core.results.table import Results, Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.schema.block import BatchSize, Choices, Positive, Seed
from ocm_core.schema.combinations import unknown_methods
from ocm_core.shapes import PerSample
from ocm_core.stages import Experiment, Job, Params, Stage, Work
from ocm_core.stages._networks import evaluating
from ocm_core.stages._results import ResultsTable, batches, check_test_split, machine_class
from ocm_core.stages.encode import open_split, read_rows
from ocm_core.stages.heads import load_denoiser
from ocm_core.uses import denoise as uses
from ocm_core.uses.denoise import SHARES, PosteriorFit

WHERE = "evaluate.denoising"
NINETY = 8  # the place of 90 % among the shares
CONSTANT = 1e-5  # relative deviation, below which all images have the same variance


class DenoisingParams(Params):
    """Gaussians of x_0 given images with noise σ: at the timesteps whose noise is nearest to it."""

    methods: Choices[str]  # estimates of Cov[x_0 | x_t] with a diagonal
    sigmas: Choices[Positive]
    images: Annotated[int, Field(ge=2, le=10**9)] | None = None  # null: the whole test set
    batch_size: BatchSize
    seed: Seed = 13


def _check(experiment: Experiment) -> Iterator[str]:
    settings = STAGE.settings(experiment)
    yield from check_test_split(experiment, WHERE)
    yield from unknown_methods(experiment, f"{WHERE}.methods", settings.methods)
    for label in {*settings.methods} & {*experiment.methods}:
        if not uses.is_estimate(class_of(experiment.methods[label].kind)):
            wrong = f"'{label}' is no estimate of Cov[x_0 | x_t] with a diagonal"
            yield f"{WHERE}.methods: {wrong}; name others"
    try:
        _times(schedules.of_experiment(experiment), settings.sigmas)
    except OcmError as error:
        yield f"{WHERE}.sigmas: {error}"


def _work(experiment: Experiment, part: str) -> Work:
    """Count a pass per image and σ; a product with the Jacobian is two."""
    settings = STAGE.settings(experiment)
    passes = 1 + 2 * sum(experiment.methods[label].products for label in settings.methods)
    images = settings.images or experiment.data.count_items()["test"]
    return Work(images * len(settings.sigmas) * passes * len(experiment.network.scores))


_NOISY = "test images with noise, given its σ, at the timestep t that has this noise"
STAGE: Stage[DenoisingParams] = Stage(
    __name__,
    "evaluate",
    params=DenoisingParams,
    **evaluating("sample.clip", methods=lambda e, part: STAGE.settings(e).methods),
    work=_work,
    check=_check,
    measures=(
        Measure(
            *("denoising_nll", "NLL of clean images, nats/dim", "lower"),
            about=f"Negative log density of {_NOISY}: by the Gaussian with x̂_0 and the whole"
            " covariance, from one pass. Where a variance is not positive it is β̃_{1:2}.",
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("coverage", "share of pixels inside 90 % intervals"),
            about=f"How often the pixels of {_NOISY} lie inside 90 % intervals about x̂_0.",
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("calibration_error", "calibration error of intervals", "lower"),
            about=f"Of {_NOISY}: |coverage - nominal|, the mean over intervals of 10, 20, …, 90 %.",
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("error_correlation", "correlation of expected and actual errors", "higher"),
            about=f"Of an image's mean variance and mean squared error, over {_NOISY}.",
            replicate="image",
            topic=USES,
        ),
        Measure("denoising_floor", "share of variances at the floor", shown=False),
        Measure("psnr", "PSNR of x̂_0, dB", "higher", replicate="image", shown=False),
    ),
)


class DenoisingTable(ResultsTable):
    """Rows of densities, coverages, correlations and PSNR."""


def run(job: Job) -> None:
    """Compare what each method expects with what is true, at every noise level."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    methods, rows, stored = build_all(experiment.methods), list[Row](), len(open_split(job, "test"))
    count = min(settings.images or stored, stored)
    for score in experiment.network.scores:
        denoiser = load_denoiser(job, score, methods)
        for t in _times(denoiser.schedule, settings.sigmas):
            seen = job.progress(batches(count, settings.batch_size), f"t = {t}, {score} score")
            parts = [_fits(job, denoiser, methods, t, batch) for batch in seen]
            place: Any = {"score": score, "timesteps": str(t)}
            for label in methods:
                fits, counts = zip(*(part[label] for part in parts), strict=True)
                whole = PosteriorFit(*map(torch.cat, zip(*fits, strict=True)))
                rows += _rows(whole, sum(counts, Counter()), method=label, **place)
    DenoisingTable(job.folder).save(Results(rows))
    job.note(images=count, machine=machine_class(job))


def _times(schedule: Schedule, sigmas: list[float]) -> list[int]:
    """Return the timesteps whose noise is nearest to these, each once."""
    return sorted({*uses.matched_timesteps(schedule, torch.tensor(sigmas).double()).tolist()})


def _fits(
    job: Job, denoiser: Denoiser, methods: Mapping[str, CovarianceMethod], t: int, batch: range
) -> dict[str, tuple[PosteriorFit, Counter[str]]]:
    """Return how each method's Gaussian fits, and how many entries of C were out of range."""
    experiment = job.experiment
    seed, limits = STAGE.settings(experiment).seed, experiment.sample.clip
    x0, label = read_rows(job, "test", batch, denoiser.network.conditional)
    noise = SampleNoise(seed, batch, experiment.shape, job.device, NoiseFor.DEVIATION, t)
    x = q_sample(x0, noise.normal(), *denoiser.schedule.marginal(t))
    clip = Clip(x0=limits.x0, c_max=limits.covariance)
    fits = {}
    for name, found in uses.posteriors(denoiser, methods, x, t, noise, label, clip).items():
        values = (value.double().cpu() for value in uses.fit(found, x0))
        fits[name] = PosteriorFit(*values), found.counter.read()
    return fits


def _rows(found: PosteriorFit, counts: Mapping[str, int], **place: Any) -> Iterator[Row]:
    """Yield the measures of one method at one timestep."""
    yield Row("denoising_nll", *_mean(found.nll), **place)
    yield Row("coverage", *_mean(found.coverage[:, NINETY]), **place)
    gaps = (found.coverage.mean(0) - SHARES).abs()
    yield Row("calibration_error", float(gaps.mean()), **place)
    if found.variance.std() > CONSTANT * found.variance.mean():
        yield Row("error_correlation", *_correlation(found.variance, found.error), **place)
    floored = counts["below"] / max(1, counts["entries"])
    yield Row("denoising_floor", floored, **place)
    # of data in [-1, 1]; the same for all methods, which share the mean
    yield Row("psnr", *_mean(-10 * (found.error / 4).log10()), **place)


def _mean(values: PerSample) -> tuple[float, float]:
    """Return the mean over images and its standard error."""
    return float(values.mean()), float(values.std()) / sqrt(len(values))


def _correlation(one: PerSample, other: PerSample) -> tuple[float, float]:
    """Return the correlation over images, and its standard error to first order."""
    u, v = ((x - x.mean()) / x.std(correction=0) for x in (one, other))
    r = (u * v).mean()
    influence = u * v - r * (u**2 + v**2) / 2
    return float(r), _mean(influence)[1]
