"""How far the images of a part's cells are from the training set, in a named feature space."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocm_core.artifacts.feature_space import load_space
from ocm_core.artifacts.images import image_reader
from ocm_core.artifacts.reference import load_reference
from ocm_core.artifacts.results import AXES, save, table
from ocm_core.artifacts.samples import read_samples, store_name
from ocm_core.cells import Cell, cells_of
from ocm_core.features.interface import FeatureSpace, ImageSet, extract
from ocm_core.io.atomic import write_text
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.kernel_distance import kernel_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.schema.block import require
from ocm_core.schema.experiment import FeaturesParams

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

NAMES = ("fid", "kid", "precision", "recall", "clamped")


def run(job: Job) -> None:
    settings = require(job.experiment.evaluate.features)
    measure = ImageMetrics(settings, load_space(job), *load_reference(job.inputs["reference/all"]))
    images_of = image_reader(job)
    cells = cells_of(job.experiment, job.part)
    found = table(cells, NAMES)
    for cell in job.progress(cells, f"distances in {settings.space}"):
        file = job.folder / f"{_name(cell)}.json"
        if not file.exists():  # what an interrupted run has finished is kept
            drawn = read_samples(job.inputs[f"sample/{job.part}"], cell)
            values = {**measure(images_of(drawn)), "clamped": drawn.clamped}
            write_text(file, json.dumps(values))
        for name, value in json.loads(file.read_text()).items():
            found[name].loc[{axis: getattr(cell, axis) for axis in AXES}] = value
    save(job.folder, found)
    for cell in cells:
        (job.folder / f"{_name(cell)}.json").unlink()
    job.note(space=settings.space, samples_per_cell=job.experiment.sample.count)


def _name(cell: Cell) -> str:
    return f"{store_name(cell)}-seed{cell.seed}"


@dataclass(frozen=True)
class ImageMetrics:
    settings: FeaturesParams
    space: FeatureSpace
    statistics: Statistics
    manifold: Manifold

    def __call__(self, images: ImageSet) -> dict[str, float]:
        settings = self.settings
        features = extract(self.space, images, settings.batch_size)
        generated = Manifold.of(
            features[: settings.manifold_images], neighbours=settings.neighbours
        )
        precision, recall = precision_recall(real=self.manifold, generated=generated)
        kid = kernel_distance(real=self.manifold.points, generated=features, seed=settings.seed)
        return {
            "fid": frechet_distance(real=self.statistics, generated=features),
            "kid": kid.value,
            "precision": precision,
            "recall": recall,
        }
