"""Restore test images from what is measured of them: errors, intervals, data fit and passes."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from pydantic import Field
from torch import Tensor

from ocm_core.covariance import build_all, class_of
from ocm_core.covariance.interface import Clip, CovarianceMethod
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.metrics.crps import TWENTY, crps, inside
from ocm_core.results.measures import USES, Measure
from ocm_core.results.table import Results, Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Recipe
from ocm_core.schema.block import BatchSize, Choices, Count, Label, Positive, Seed
from ocm_core.schema.combinations import check_timesteps, unknown_methods
from ocm_core.schema.timesteps import NamedTimesteps, TimestepsParams
from ocm_core.shapes import Images, Labels, PerSample
from ocm_core.stages import Experiment, Job, Params, Stage, Work
from ocm_core.stages._images import shown_pixels
from ocm_core.stages._networks import evaluating
from ocm_core.stages._results import ResultsTable, check_test_split, machine_class
from ocm_core.stages.encode import open_split, read_rows
from ocm_core.stages.heads import load_denoiser
from ocm_core.stages.timesteps import optimal_timesteps
from ocm_core.uses import operators
from ocm_core.uses.denoise import is_estimate
from ocm_core.uses.linear import Measured
from ocm_core.uses.operators import OperatorParams
from ocm_core.uses.restore import PLAIN, Algorithm, AlgorithmName, Restored, restore

WHERE = "evaluate.restoration"
PICTURES, SHOWN = "pictures.npz", 6
MOST = 1000.0  # of a deviation that is kept: draws may diverge
PICTURED = ("mean", "a draw", "another", "deviation")


class RestorationTask(Params):
    """What is measured: y = A x_0 + σ n."""

    operator: OperatorParams
    sigma: Positive


class RestorationParams(Params):
    """Draws of test images given y: `kalman` by each method, and algorithms that need none."""

    tasks: Annotated[dict[Label, RestorationTask], Field(min_length=1, max_length=20)]
    methods: Choices[str]  # estimates of Cov[x_0 | x_t] with a diagonal
    algorithms: list[AlgorithmName] = ["mmps", "dps", "pigdm"]
    nfe: Choices[Count] = [10]
    timesteps: TimestepsParams = NamedTimesteps()  # `optimal`: the first method's for algorithms
    images: Annotated[int, Field(ge=2, le=10**6)] = 20
    draws: Annotated[int, Field(ge=TWENTY - 1, le=1000)] = TWENTY - 1
    iterations: Count = 3  # of mmps
    scale: Positive = 1.0  # ζ of dps
    batch_size: BatchSize = 100  # draws
    seed: Seed = 14


def _check(experiment: Experiment) -> Iterator[str]:
    settings = STAGE.settings(experiment)
    yield from check_test_split(experiment, WHERE)
    yield from unknown_methods(experiment, f"{WHERE}.methods", settings.methods)
    for label in {*settings.methods} & {*experiment.methods}:
        if not is_estimate(class_of(experiment.methods[label].kind)):
            wrong = f"'{label}' is no estimate of Cov[x_0 | x_t] with a diagonal"
            yield f"{WHERE}.methods: {wrong}; name others"
    given = settings.timesteps, settings.nfe, settings.methods
    yield from check_timesteps(experiment, f"{WHERE}.timesteps", *given)
    if max(settings.nfe) > (last := experiment.schedule.steps):
        yield f"{WHERE}.nfe: {max(settings.nfe)} is more than schedule.steps = {last}"
    if experiment.levels is None or len(experiment.shape) != 3:
        yield f"{WHERE}: operators are for images, and the data are points or latents; use null"
    if "kalman" in settings.algorithms:
        yield f"{WHERE}.algorithms: kalman is there for each of `methods`; name others"
    if (settings.draws + 1) % TWENTY:
        yield f"{WHERE}.draws: {settings.draws}; 19, 39, … have intervals of 90 % between two draws"


def _work(experiment: Experiment, part: str) -> Work:
    """Count the passes of all ways; a product with the Jacobian is two."""
    settings = STAGE.settings(experiment)
    passes = sum(1 + 2 * experiment.methods[label].products for label in settings.methods)
    passes += sum(_algorithm(settings, name).passes(PLAIN, 1) for name in settings.algorithms)
    draws = settings.images * settings.draws * sum(settings.nfe) * len(settings.tasks)
    return Work(draws * passes * len(experiment.network.scores))


_OF = "of test images given y = A x_0 + σ n"
STAGE: Stage[RestorationParams] = Stage(
    __name__,
    "evaluate",
    params=RestorationParams,
    **evaluating(
        "sample.clip",
        methods=lambda e, part: STAGE.settings(e).methods,
        optimal=lambda e: STAGE.settings(e).timesteps.kind == "optimal",
    ),
    work=_work,
    check=_check,
    measures=(
        Measure(
            *("crps", "CRPS of a pixel", "lower"),
            about=f"The continuous ranked probability score of draws {_OF}: E|x - x_0| less half of"
            " E|x - x'|, for pixels in [-1, 1]. A method has its name where its covariance is C.",
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("crps_difference", "CRPS less that of the first method", "lower"),
            about="In pairs by image, with the same noise.",
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("restored_psnr", "PSNR of the mean, dB", "higher"),
            about=f"Of the mean of draws {_OF}.",
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("restored_coverage", "share of pixels inside 90 % intervals of draws"),
            about=f"How often a pixel {_OF} lies between two draws of it that enclose 90 %.",
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("data_chi2", "‖y - A x‖² / σ² per measurement"),
            about="Mean over draws; 1 for draws of the posterior.",
            log=True,
            replicate="image",
            topic=USES,
        ),
        Measure(
            *("passes", "passes of the network for a draw"),
            about="A backward pass counts as two: so long it takes.",
            replicate=None,
            topic=USES,
        ),
    ),
)


class RestorationTable(ResultsTable):
    """Rows of CRPS, PSNR, coverage, χ² and passes, and pictures of the first images."""

    def save_pictures(self, pictures: Mapping[str, ndarray]) -> None:
        np.savez_compressed(self.folder / PICTURES, **pictures)  # type: ignore[arg-type]

    def load_pictures(self) -> dict[str, ndarray]:
        """Return images by `task/row`: uint8, or the deviation of pixels in floating point."""
        with np.load(self.folder / PICTURES) as arrays:
            return {name: arrays[name] for name in arrays.files}


class Restoring(NamedTuple):
    """One task: what was measured of which images, and who restores them."""

    name: str
    x0: Images
    label: Labels
    measured: Measured
    reached: Tensor  # whether an entry of y depends on the image at all

    @property
    def pictures(self) -> dict[str, ndarray]:
        """Return what there was, and what was seen of it."""
        size, y = self.x0.shape[-2:], self.measured.y[:SHOWN]
        seen = torch.nn.functional.interpolate(y, size=size, mode="nearest")
        return {f"{self.name}/truth": _pixels(self.x0[:SHOWN]), f"{self.name}/y": _pixels(seen)}

    def shown(self, way: str, found: Restored) -> dict[str, ndarray]:
        """Return pictures of what a way restored."""
        images = found.mean, found.draws[:, 0], found.draws[:, 1]
        deviation = found.std[:SHOWN].square().mean(1).sqrt().nan_to_num(MOST).clamp(max=MOST)
        pictures = [
            *(_pixels(x[:SHOWN]) for x in images),
            deviation.cpu().numpy().astype(np.float16),
        ]
        names = (f"{self.name}/{way}: {what}" for what in PICTURED)
        return dict(zip(names, pictures, strict=True))

    def scores(self, found: Restored) -> dict[str, PerSample]:
        """Return what draws are worth, image by image."""
        draws, truth = found.draws.double(), self.x0.double()
        flat, sigma = draws.flatten(0, 1), self.measured.sigma
        residual = self.measured.y.repeat_interleave(draws.shape[1], 0) - self._seen(flat)
        squares = (residual * self.reached).square().flatten(1).sum(1) / sigma**2
        error = (draws.mean(1) - truth).square().flatten(1).mean(1)
        return {
            "crps": crps(draws, truth).flatten(1).mean(1),
            "restored_psnr": -10 * (error / 4).log10(),  # of data in [-1, 1]
            "restored_coverage": inside(draws, truth).flatten(1).mean(1),
            "data_chi2": squares.view(len(draws), -1).mean(1) / int(self.reached.sum()),
        }

    def _seen(self, x: Tensor) -> Tensor:
        y: Tensor = self.measured.physics.A(x.to(self.x0))
        return y


def run(job: Job) -> None:
    """Restore the images of every task in every way, with every score and nfe."""
    experiment, settings = job.experiment, STAGE.settings(job.experiment)
    methods, rule, rows = build_all(experiment.methods), settings.timesteps, list[Row]()
    images, pictures = min(settings.images, len(open_split(job, "test"))), dict[str, ndarray]()
    limits = experiment.sample.clip
    clip = Clip(x0=limits.x0, c_max=limits.covariance)
    for score in experiment.network.scores:
        denoiser, optimal = load_denoiser(job, score, methods), optimal_timesteps(job, score)
        tasks = [_task(job, name, denoiser, images) for name in settings.tasks]
        for task, nfe in product(tasks, settings.nfe):
            pictures |= task.pictures
            first: PerSample | None = None
            for way, method, how in _ways(settings, methods):
                label = method.label if how.takes_method else settings.methods[0]
                visited = rules.build(rule, denoiser.schedule, nfe, label, optimal)
                found = _restored(job, denoiser, task, method, visited, how, clip, way)
                place: Any = {"score": score, "sampler": task.name, "method": way, "nfe": nfe}
                scores = task.scores(found)
                first = scores["crps"] if first is None else first
                scores["crps_difference"] = scores["crps"] - first
                rows += [Row(k, *_mean(x), timesteps=rule.kind, **place) for k, x in scores.items()]
                rows.append(Row("passes", found.passes, timesteps=rule.kind, **place))
                if way in (settings.methods[0], *settings.algorithms[:1]):
                    pictures |= task.shown(way, found)
    table = RestorationTable(job.folder)
    table.save(Results(rows))
    table.save_pictures(pictures)
    job.note(images=images, machine=machine_class(job))


def _task(job: Job, name: str, denoiser: Denoiser, images: int) -> Restoring:
    """Measure test images, with noise that is each image's own."""
    settings, rows = STAGE.settings(job.experiment), range(images)
    task = settings.tasks[name]
    x0, label = read_rows(job, "test", rows, denoiser.network.conditional)
    physics = operators.build(task.operator, job.experiment.shape).to(job.device)
    seen = physics.A(x0)
    noise = SampleNoise(
        settings.seed, rows, tuple(seen.shape[1:]), job.device, NoiseFor.OBSERVED
    ).normal()
    reached = physics.A(noise.new_ones(1, *x0.shape[1:])) != 0
    y = (seen + task.sigma * noise) * reached
    return Restoring(name, x0, label, Measured(y, physics, task.sigma), reached)


def _ways(
    settings: RestorationParams, methods: Mapping[str, CovarianceMethod]
) -> Iterator[tuple[str, CovarianceMethod, Algorithm]]:
    """Yield names, covariance methods and algorithms: `kalman` by each method, then the others."""
    for label in settings.methods:
        yield label, methods[label], _algorithm(settings, "kalman")
    for name in settings.algorithms:
        yield name, PLAIN, _algorithm(settings, name)


def _algorithm(settings: RestorationParams, name: AlgorithmName) -> Algorithm:
    return Algorithm(name, settings.iterations, settings.scale)


def _restored(
    job: Job,
    denoiser: Denoiser,
    task: Restoring,
    method: CovarianceMethod,
    visited: Timesteps,
    how: Algorithm,
    clip: Clip,
    way: str,
) -> Restored:
    settings = STAGE.settings(job.experiment)
    return restore(
        denoiser,
        task.measured,
        Recipe(visited, method, Ddpm(), clip=clip),
        how,
        count=settings.draws,
        labels=task.label,
        batch_size=settings.batch_size,
        seed=settings.seed,
        progress=lambda rows: job.progress(rows, f"{task.name}, {way}, nfe {len(visited)}"),
    )


def _mean(values: PerSample) -> tuple[float, float]:
    """Return the mean over images and its standard error."""
    return float(values.mean()), float(values.std()) / sqrt(len(values))


def _pixels(images: Images) -> ndarray:
    """Return images in [-1, 1] as pages show them."""
    levels = ((images.detach().cpu().nan_to_num().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return shown_pixels(levels)
