"""Measure how far the images of each cell are from the training set, in named feature spaces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy import ndarray
from pydantic import Field

from ocm_core.cells import Cell, cells_of, parts
from ocm_core.features.interface import FeatureSpace, ImageSet, extract
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.jackknife import MEASURES, left_out
from ocm_core.metrics.kernel_distance import kernel_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.pipeline.job import Job
from ocm_core.pipeline.stage import Stage, Task, Work
from ocm_core.results.table import Results, Row
from ocm_core.schema.block import Params, require
from ocm_core.schema.experiment import Experiment, FeaturesParams
from ocm_core.stages._images import image_reader, shown_pixels
from ocm_core.stages._results import PartialResult, ResultsTable, computed, machine_class
from ocm_core.stages.fetch_vae import VAE, vae_modules
from ocm_core.stages.reference import SPACE_TASKS, Reference, load_space
from ocm_core.stages.sample import Samples

INCEPTION_NAMES = {"frechet": "fid", "kernel_distance": "kid"}
SHOWN = 12  # images of a cell that a page may show


class DistancesParams(Params):
    """Distances to the training set in the spaces of `features`, precision and recall."""

    blocks: Annotated[int, Field(ge=2, le=1000)] | None = None  # of the jackknife, with one seed


def _check(experiment: Experiment) -> Iterator[str]:
    where, features, sample = "evaluate.distances", experiment.features, experiment.sample
    blocks = STAGE.settings(experiment).blocks
    if features is None:
        yield f"{where}: measured in a space of features, and features is null; use null here, too"
        return
    if blocks is None:
        return
    if len(sample.seeds) > 1:
        yield f"{where}.blocks: with {len(sample.seeds)} seeds errors come from these; use null"
    least = min(sample.count, features.manifold_images or sample.count)
    if least < max(2 * blocks, 2 * features.neighbours + 2):
        yield (
            f"{where}.blocks: {blocks} blocks of {least} samples; expected at least two samples in"
            " each, and more than neighbours when one is left out"
        )


def _takes(experiment: Experiment, part: str) -> list[Task]:
    references = [Reference.task(space) for space in experiment.spaces]
    return [Samples.task(part), *references, *SPACE_TASKS, *VAE]


STAGE = Stage(
    __name__,
    "evaluate",
    params=DistancesParams,
    parts=lambda e: list(parts(e)) if "distances" in e.evaluate else [],
    takes=_takes,
    reads=("data", "encode.latent", "network.scores", "sample", "features"),
    plugins=lambda experiment, part: [
        *(f"ocm_core.features.{space}" for space in experiment.spaces),
        *vae_modules(experiment),
    ],
    gpu=True,
    memory=16_000,
    work=lambda experiment, part: Work(
        float(len(cells_of(experiment, part)) * experiment.sample.count), "features"
    ),
    check=_check,
)


class Distances(ResultsTable):
    """Rows of distances, precision and recall, and a few images of the first seed's cells."""

    def images(self, cell: Cell) -> ndarray:
        """Load the first images of a cell, as pages show them."""
        return np.asarray(np.load(self.folder / f"{cell_name(cell)}.npy"))

    def save_images(self, cell: Cell, images: ndarray) -> None:
        np.save(self.folder / f"{cell_name(cell)}.npy", images)


def cell_name(cell: Cell) -> str:
    """Name the file of a cell's images."""
    return "-".join(map(str, vars(cell).values()))


def run(job: Job) -> None:
    experiment, images_of = job.experiment, image_reader(job)
    spaces = [MeasuredSpace.load(job, name) for name in experiment.spaces]
    blocks, samples = STAGE.settings(experiment).blocks, job.take(Samples, job.part)
    cells = {cell_name(cell): cell for cell in cells_of(experiment, job.part)}

    def measure(cell: Cell) -> PartialResult:
        drawn = samples.read(cell)
        values = [["clamped", "", drawn.clamped]]
        for space in spaces:
            values += [list(value) for value in space.measure(images_of(drawn), blocks)]
        return {}, values

    states, rows = computed(job, cells, measure, "distances"), []
    for cell, state in zip(cells.values(), states, strict=True):
        for measure_name, block, value in state.facts:
            replicate = f"{cell.place['replicate']}{block}"
            rows.append(Row(measure_name, value, **{**cell.place, "replicate": replicate}))
        if cell.seed == experiment.sample.seeds[0]:
            shown = images_of(samples.read(cell))[:SHOWN]
            Distances(job.folder).save_images(cell, shown_pixels(shown))
    Distances(job.folder).save(Results(rows))
    job.note(
        spaces=experiment.spaces,
        samples_per_cell=experiment.sample.count,
        machine=machine_class(job),
    )


@dataclass(frozen=True)
class MeasuredSpace:
    """A feature space with the reference set in it."""

    name: str
    settings: FeaturesParams
    network: FeatureSpace
    statistics: Statistics
    manifold: Manifold

    @classmethod
    def load(cls, job: Job, name: str) -> MeasuredSpace:
        statistics, manifold = job.take(Reference, name).load()
        device = "cuda" if job.device == "cuda" else "cpu"  # distances are in float64
        settings = require(job.experiment.features)
        known = (statistics.to(device), manifold.to(device))
        return cls(name, settings, load_space(job, name), *known)

    def key(self, measure: str) -> str:
        """Return the measure's key: FID and KID are names for Inception's space alone."""
        base = INCEPTION_NAMES.get(measure, measure) if self.name == "inception" else measure
        return base if self.name == self.settings.space else f"{base}.{self.name}"

    def measure(self, images: ImageSet, blocks: int | None) -> Iterator[tuple[str, str, float]]:
        """Yield (measure, block left out, value); the whole set first."""
        settings = self.settings
        features = extract(self.network, images, settings.batch_size)
        features = features.to(self.statistics.mean.device)
        kept = features[: settings.manifold_images]
        generated = Manifold.of(kept, neighbours=settings.neighbours)
        precision, recall = precision_recall(real=self.manifold, generated=generated)
        real = self.manifold.points
        kernel = kernel_distance(real=real, generated=features, seed=settings.seed).value
        frechet = frechet_distance(real=self.statistics, generated=features)
        whole = dict(zip(MEASURES, (frechet, kernel, precision, recall), strict=True))
        for name, value in whole.items():
            yield self.key(name), "", value
        if blocks is None:
            return
        without = left_out(
            whole,
            features,
            blocks,
            statistics=self.statistics,
            manifold=self.manifold,
            neighbours=settings.neighbours,
            manifold_images=settings.manifold_images,
        )
        for name, values in without.items():
            for block, value in enumerate(values.tolist()):
                yield self.key(name), f"/without{block}", value
