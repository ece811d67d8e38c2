"""Measure how far the images of each cell are from the training set, in named feature spaces."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from ocm_core.cells import Cell, cells_of, parts
from ocm_core.features import FeatureSpace, ImageSet, extract
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.jackknife import MEASURES, left_out
from ocm_core.metrics.kernel_distance import kernel_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.results.table import Results, Row
from ocm_core.stages import Experiment, Job, Params, Stage, Work, require
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


STAGE = Stage(
    __name__,
    "evaluate",
    params=DistancesParams,
    parts=lambda e: list(parts(e)) if "distances" in e.evaluate else [],
    takes=lambda e, part: [Samples.task(part), *map(Reference.task, e.spaces), *SPACE_TASKS, *VAE],
    reads=("data", "encode.latent", "network.scores", "sample", "features"),
    plugins=lambda e, part: [*(f"ocm_core.features.{s}" for s in e.spaces), *vae_modules(e)],
    gpu=True,
    work=lambda e, part: Work(len(cells_of(e, part)) * e.sample.count, "features"),
    check=_check,
)


class Distances(ResultsTable):
    """Rows of distances, precision and recall, and a few images of the first seed's cells."""

    def file(self, cell: Cell) -> Path:
        """Return where the first images of a cell lie, as pages show them."""
        return self.folder / f"{cell_name(cell)}.npy"


def cell_name(cell: Cell) -> str:
    """Name the file of a cell's images."""
    return "-".join(map(str, vars(cell).values()))


def run(job: Job) -> None:
    """Measure every cell in every space, and keep a few of its images."""
    experiment, images_of = job.experiment, image_reader(job)
    samples, cells = job.take(Samples, job.part), cells_of(experiment, job.part)
    device = "cuda" if job.device == "cuda" else "cpu"  # distances are in float64
    spaces = {}
    for name in experiment.spaces:
        statistics, manifold = job.take(Reference, name).load()
        spaces[name] = (load_space(job, name), statistics.to(device), manifold.to(device))

    def measure(cell: Cell) -> PartialResult:
        drawn = samples.read(cell)
        values = [["clamped", "", drawn.clamped]]
        for name, known in spaces.items():
            found = _distances(experiment, images_of(drawn), known)
            values += [[_key(experiment, name, key), block, value] for key, block, value in found]
        return {}, values

    states = computed(job, {cell_name(cell): cell for cell in cells}, measure, "distances")
    rows = []
    for cell, state in zip(cells, states, strict=True):
        for key, block, value in state.facts:
            replicate = f"{cell.place['replicate']}{block}"
            rows.append(Row(key, value, **{**cell.place, "replicate": replicate}))
        if cell.seed == experiment.sample.seeds[0]:
            shown = images_of(samples.read(cell))[:SHOWN]
            np.save(Distances(job.folder).file(cell), shown_pixels(shown))
    Distances(job.folder).save(Results(rows))
    count = experiment.sample.count
    job.note(spaces=experiment.spaces, samples_per_cell=count, machine=machine_class(job))


def _key(experiment: Experiment, space: str, measure: str) -> str:
    """Return the measure's key: FID and KID are names for Inception's space alone."""
    base = INCEPTION_NAMES.get(measure, measure) if space == "inception" else measure
    return base if space == experiment.spaces[0] else f"{base}.{space}"


def _distances(
    experiment: Experiment, images: ImageSet, known: tuple[FeatureSpace, Statistics, Manifold]
) -> Iterator[tuple[str, str, float]]:
    """Yield (measure, block left out, value); the whole set first."""
    settings, blocks = require(experiment.features), STAGE.settings(experiment).blocks
    space, statistics, manifold = known
    features = extract(space, images, settings.batch_size).to(statistics.mean.device)
    few, neighbours = settings.manifold_images, settings.neighbours
    frechet = frechet_distance(real=statistics, generated=features)
    kernel = kernel_distance(real=manifold.points, generated=features, seed=settings.seed).value
    generated = Manifold.of(features[:few], neighbours=neighbours)
    shares = precision_recall(real=manifold, generated=generated)
    whole = dict(zip(MEASURES, (frechet, kernel, *shares), strict=True))
    yield from ((name, "", value) for name, value in whole.items())
    if blocks is not None:
        real: Any = {"statistics": statistics, "manifold": manifold, "neighbours": neighbours}
        without = left_out(whole, features, blocks, **real, manifold_images=few)
        for name, values in without.items():
            yield from ((name, f"/without{i}", value) for i, value in enumerate(values.tolist()))
