"""Restore test images from what is measured of them: errors, intervals, data fit and passes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np
import torch
from numpy import ndarray
from pydantic import Field

from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.features.images import shown_pixels
from ocm_core.metrics import mean_and_error
from ocm_core.metrics.crps import TWENTY
from ocm_core.results.measures import of_use
from ocm_core.results.table import Row
from ocm_core.rng.noise import NoiseFor, SampleNoise
from ocm_core.sampling.recipe import Recipe
from ocm_core.schema.block import BatchSize, Choices, Count, Label, Positive, Seed
from ocm_core.schema.timesteps import NamedTimesteps, TimestepsParams
from ocm_core.shapes import Images
from ocm_core.stages import Experiment, Job, Params
from ocm_core.stages._evaluation import evaluated, evaluation, passes_of
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.encode import count_images
from ocm_core.uses import operators
from ocm_core.uses.denoise import no_estimates
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

    def algorithm(self, name: AlgorithmName) -> Algorithm:
        """Return an algorithm with its options."""
        return Algorithm(name, self.iterations, self.scale)


def _check(experiment: Experiment, settings: RestorationParams) -> Iterator[str]:
    for problem in no_estimates(experiment, settings.methods):
        yield f"{WHERE}.methods: {problem}"
    if experiment.levels is None or len(experiment.shape) != 3:
        yield f"{WHERE}: operators are for images, and the data are points or latents; use null"
    if "kalman" in settings.algorithms:
        yield f"{WHERE}.algorithms: kalman is there for each of `methods`; name others"
    if (settings.draws + 1) % TWENTY:
        yield f"{WHERE}.draws: {settings.draws}; 19, 39, … have intervals of 90 % between two draws"


def _passes(experiment: Experiment, settings: RestorationParams) -> float:
    """Count the passes of all ways."""
    passes = passes_of(experiment, settings.methods)
    passes += sum(settings.algorithm(name).passes(PLAIN, 1) for name in settings.algorithms)
    return settings.draws * sum(settings.nfe) * len(settings.tasks) * passes


_OF = "of test images given y = A x_0 + σ n"
STAGE = evaluation(
    __name__,
    RestorationParams,
    "sample.clip",
    passes=_passes,
    check=_check,
    measures=(
        of_use(
            *("crps", "CRPS of a pixel", "lower"),
            about=f"The continuous ranked probability score of draws {_OF}: E|x - x_0| less half of"
            " E|x - x'|, for pixels in [-1, 1]. A method has its name where its covariance is C.",
        ),
        of_use(
            *("crps_difference", "CRPS less that of the first method", "lower"),
            about="In pairs by image, with the same noise.",
        ),
        of_use(
            *("restored_psnr", "PSNR of the mean, dB", "higher"),
            about=f"Of the mean of draws {_OF}.",
        ),
        of_use(
            *("restored_coverage", "share of pixels inside 90 % intervals of draws"),
            about=f"How often a pixel {_OF} lies between two draws of it that enclose 90 %.",
        ),
        of_use(
            *("data_chi2", "‖y - A x‖² / σ² per measurement"),
            about="Mean over draws; 1 for draws of the posterior.",
            log=True,
        ),
        of_use(
            *("passes", "passes of the network for a draw"),
            about="A backward pass counts as two: so long it takes.",
            replicate=None,
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


def run(job: Job) -> None:
    """Restore the images of every task in every way, with every score and nfe."""
    settings, rows = STAGE.settings(job.experiment), list[Row]()
    images, pictures = count_images(job, settings.images), dict[str, ndarray]()
    rule, first = settings.timesteps, settings.methods[0]
    for model in evaluated(job):
        ways = [(k, model.methods[k], settings.algorithm("kalman")) for k in settings.methods]
        ways += [(k, PLAIN, settings.algorithm(k)) for k in settings.algorithms]
        x0, label = model.read(range(images))
        for name in settings.tasks:
            measured = _measured(job, name, x0)
            pictures |= _seen(name, x0, measured)
            for nfe, (way, method, how) in product(settings.nfe, ways):
                visited = model.timesteps(rule, way if how.takes_method else first, nfe)
                found = restore(
                    *(model.denoiser, measured, Recipe(visited, method, Ddpm(), clip=model.clip)),
                    how,
                    count=settings.draws,
                    labels=label,
                    batch_size=settings.batch_size,
                    seed=settings.seed,
                    progress=partial(job.progress, description=f"{name}, {way}, nfe {nfe}"),
                )
                scores = found.scores(measured, x0)
                if way == first:
                    least = scores["crps"]
                scores["crps_difference"] = scores["crps"] - least
                place: Any = {"score": model.score, "sampler": name, "method": way, "nfe": nfe}
                place["timesteps"] = rule.kind
                rows += [Row(key, *mean_and_error(x), **place) for key, x in scores.items()]
                rows.append(Row("passes", found.passes, **place))
                if way in (first, *settings.algorithms[:1]):
                    pictures |= _shown(f"{name}/{way}", found)
    table = RestorationTable(job.folder)
    table.save(rows)
    table.save_pictures(pictures)
    job.note(images=images, machine=machine_class(job))


def _measured(job: Job, name: str, x0: Images) -> Measured:
    """Measure test images, with noise that is each image's own."""
    settings = STAGE.settings(job.experiment)
    task = settings.tasks[name]
    physics = operators.build(task.operator, job.experiment.shape).to(job.device)
    seen = physics.A(x0)
    whose = settings.seed, range(len(x0)), tuple(seen.shape[1:]), job.device
    noise = SampleNoise(*whose, NoiseFor.OBSERVED).normal()
    measured = Measured(seen + task.sigma * noise, physics, task.sigma)
    return replace(measured, y=measured.y * measured.reached)


def _seen(name: str, x0: Images, measured: Measured) -> dict[str, ndarray]:
    """Return pictures of what there was, and of what was seen of it."""
    y, size = measured.y[:SHOWN], x0.shape[-2:]
    seen = torch.nn.functional.interpolate(y, size=size, mode="nearest")
    return {f"{name}/truth": _pixels(x0[:SHOWN]), f"{name}/y": _pixels(seen)}


def _shown(name: str, found: Restored) -> dict[str, ndarray]:
    """Return pictures of what a way restored."""
    images = found.mean, found.draws[:, 0], found.draws[:, 1]
    deviation = found.std[:SHOWN].square().mean(1).sqrt().nan_to_num(MOST).clamp(max=MOST)
    pictures = [*(_pixels(x[:SHOWN]) for x in images), deviation.cpu().numpy().astype(np.float16)]
    return {f"{name}: {what}": one for what, one in zip(PICTURED, pictures, strict=True)}


def _pixels(images: Images) -> ndarray:
    """Return images in [-1, 1] as pages show them."""
    levels = ((images.detach().cpu().nan_to_num().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return shown_pixels(levels)
