"""How far the images of a part's cells are from the training set, in named feature spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocm_core.artifacts.feature_space import load_space
from ocm_core.artifacts.images import image_reader
from ocm_core.artifacts.machine import machine_class
from ocm_core.artifacts.reference import load_reference
from ocm_core.artifacts.results import AXES, save, table
from ocm_core.artifacts.samples import read_samples, store_name
from ocm_core.cells import cells_of
from ocm_core.features.interface import FeatureSpace, ImageSet, extract
from ocm_core.io.state_file import load_state, save_state
from ocm_core.metrics.frechet import Statistics, frechet_distance
from ocm_core.metrics.kernel_distance import kernel_distance
from ocm_core.metrics.precision_recall import Manifold, precision_recall
from ocm_core.schema.block import require
from ocm_core.schema.experiment import FeaturesParams

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

MEASURES = ("fid", "kid", "precision", "recall")


def run(job: Job) -> None:
    settings = require(job.experiment.evaluate.features)
    measures = {_ending(space, settings): _metrics(job, space) for space in settings.spaces}
    images_of = image_reader(job)
    cells = cells_of(job.experiment, job.part)
    found = table(cells, [*(n + end for end in measures for n in MEASURES), "clamped"])
    for cell in job.progress(cells, f"distances in {', '.join(settings.spaces)}"):
        file = job.state / f"{store_name(cell)}-seed{cell.seed}.safetensors"
        if begun := load_state(file):  # what an interrupted run has finished is kept
            values = begun.facts
        else:
            drawn = read_samples(job.inputs[f"sample/{job.part}"], cell)
            images = images_of(drawn)
            values = {"clamped": drawn.clamped}
            for ending, measure in measures.items():
                values |= {n + ending: value for n, value in measure(images).items()}
            save_state(file, {}, values)
        for name, value in values.items():
            found[name].loc[{axis: getattr(cell, axis) for axis in AXES}] = value
    save(job.folder, found)
    job.note(
        spaces=settings.spaces,
        samples_per_cell=job.experiment.sample.count,
        machine=machine_class(job),
    )


def _ending(space: str, settings: FeaturesParams) -> str:
    """Of the names of what is measured there: none in the page's own space."""
    return "" if space == settings.space else f"_{space}"


def _metrics(job: Job, space: str) -> ImageMetrics:
    settings = require(job.experiment.evaluate.features)
    statistics, manifold = load_reference(job.inputs[f"reference/{space}"])
    device = "cuda" if job.device == "cuda" else "cpu"  # distances are in float64
    return ImageMetrics(
        settings, load_space(job, space), statistics.to(device), manifold.to(device)
    )


@dataclass(frozen=True)
class ImageMetrics:
    settings: FeaturesParams
    space: FeatureSpace
    statistics: Statistics
    manifold: Manifold

    def __call__(self, images: ImageSet) -> dict[str, float]:
        settings = self.settings
        features = extract(self.space, images, settings.batch_size).to(self.statistics.mean.device)
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
