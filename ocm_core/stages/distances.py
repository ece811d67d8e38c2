"""Measure how far the images of each cell are from the training set, in named feature spaces."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from ocm_core.cells import Cell, cells_of, parts
from ocm_core.features import FeatureSpace, ImageSet, extract
from ocm_core.features.images import shown_pixels
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.jackknife import MEASURES, left_out
from ocm_core.metrics.kernel_distance import kernel_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.pipeline.pieces import PIECES, PartialResult, computed, load_pieces
from ocm_core.results.table import Row
from ocm_core.stages import Experiment, Job, MadeOf, Params, Stage, Work, require
from ocm_core.stages._results import ResultsTable, machine_class
from ocm_core.stages.fetch_vae import VAE, image_reader, vae_modules
from ocm_core.stages.reference import SPACE_TASKS, Reference, load_space
from ocm_core.stages.sample import Samples, folder_name

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
    work=lambda e, part: Work(len(cells_of(e, part)) * e.sample.count, "decoded"),
    check=_check,
)


class Distances(ResultsTable):
    """Rows of distances, precision and recall, and a few images of every cell."""

    def shown(self, cell: Cell) -> np.ndarray:
        """Return the first images of a cell, as pages show them."""
        (piece,) = load_pieces(self.folder / PIECES, [folder_name(cell)])
        return piece.tensors["shown"].numpy()


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
            found = _distances(job, images_of(drawn), known)
            values += [[_key(experiment, name, key), block, value] for key, block, value in found]
        shown = torch.from_numpy(shown_pixels(images_of(drawn)[:SHOWN]))
        return {"shown": shown}, values

    named = {folder_name(cell): cell for cell in cells}
    states = computed(job, named, measure, "distances", partial(_made_of, job))
    rows = []
    for cell, state in zip(cells, states, strict=True):
        for key, block, value in state.facts:
            replicate = f"{cell.place['replicate']}{block}"
            rows.append(Row(key, value, **{**cell.place, "replicate": replicate}))
    Distances(job.folder).save(rows)
    count = experiment.sample.count
    job.note(spaces=experiment.spaces, samples_per_cell=count, machine=machine_class(job))


def _made_of(job: Job, cell: Cell) -> MadeOf:
    """Return all that the distances of a cell depend on, and nothing of other cells."""
    experiment, samples = job.experiment, Samples.task(job.part)
    latent, features = experiment.encode.latent, require(experiment.features)
    inputs = job.contents(samples, lambda name: name.startswith(f"{folder_name(cell)}/"))
    for task in job.folders.keys() - {samples}:
        inputs |= job.contents(task)
    facts = {
        "data": experiment.data.model_dump(mode="json"),
        "latent": latent and latent.model_dump(mode="json"),
        "features": features.model_dump(mode="json"),
        "blocks": STAGE.settings(experiment).blocks,
        "inputs": inputs,
    }
    return MadeOf([__name__, *STAGE.plugins(experiment, job.part)], facts)


def _key(experiment: Experiment, space: str, measure: str) -> str:
    """Return the measure's key: FID and KID are names for Inception's space alone."""
    base = INCEPTION_NAMES.get(measure, measure) if space == "inception" else measure
    return base if space == experiment.spaces[0] else f"{base}.{space}"


def _distances(
    job: Job, images: ImageSet, known: tuple[FeatureSpace, Statistics, Manifold]
) -> Iterator[tuple[str, str, float]]:
    """Yield (measure, block left out, value); the whole set first."""
    settings, blocks = require(job.experiment.features), STAGE.settings(job.experiment).blocks
    space, statistics, manifold = known
    shown = partial(job.progress, description=f"features, {space.name}")
    features = extract(space, images, settings.batch_size, shown).to(statistics.mean.device)
    few, neighbours = settings.manifold_images, settings.neighbours
    frechet = frechet_distance(real=statistics, generated=features)
    kernel = kernel_distance(real=manifold.points, generated=features, seed=settings.seed)
    generated = Manifold.of(features[:few], neighbours=neighbours)
    shares = precision_recall(real=manifold, generated=generated)
    whole = dict(zip(MEASURES, (frechet, kernel, *shares), strict=True))
    yield from ((name, "", value) for name, value in whole.items())
    if blocks is not None:
        real: Any = {"statistics": statistics, "manifold": manifold, "neighbours": neighbours}
        without = left_out(whole, features, blocks, **real, manifold_images=few)
        for name, values in without.items():
            yield from ((name, f"/without{i}", value) for i, value in enumerate(values.tolist()))
