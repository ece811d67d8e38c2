"""How far the measures of `evaluate_images` move when a block of samples is left out.

For experiments of one seed: where there are several, errors come from those. Features are computed
once more, so that an experiment whose distances are known can be given errors, and nothing else of
it is computed again.
"""

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
from ocm_core.metrics.frechet import Statistics
from ocm_core.metrics.jackknife import MEASURES, deviations
from ocm_core.metrics.precision_recall import Manifold
from ocm_core.schema.block import require
from ocm_core.schema.experiment import FeaturesParams

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    settings = require(job.experiment.evaluate.features)
    blocks = require(job.experiment.evaluate.jackknife).blocks
    spaces = [_space(job, name) for name in settings.spaces]
    images_of = image_reader(job)
    cells = cells_of(job.experiment, job.part)
    names = [space.variable(measure) for space in spaces for measure in MEASURES]
    found = table(cells, names).expand_dims({"block": blocks}, axis=-1).copy(deep=True)
    for cell in job.progress(cells, f"jackknife in {', '.join(settings.spaces)}"):
        file = job.state / f"{store_name(cell)}-seed{cell.seed}.safetensors"
        if begun := load_state(file):  # what an interrupted run has finished is kept
            values = begun.facts
        else:
            images = images_of(read_samples(job.inputs[f"sample/{job.part}"], cell))
            values = {}
            for space in spaces:
                values |= space.deviations(images, blocks)
            save_state(file, {}, values)
        for name, without in values.items():
            found[name].loc[{axis: getattr(cell, axis) for axis in AXES}] = without
    save(job.folder, found)
    job.note(blocks=blocks, machine=machine_class(job))


def _space(job: Job, name: str) -> _Space:
    statistics, manifold = load_reference(job.inputs[f"reference/{name}"])
    device = "cuda" if job.device == "cuda" else "cpu"  # distances are in float64
    settings = require(job.experiment.evaluate.features)
    known = (statistics.to(device), manifold.to(device))
    return _Space(name, settings, load_space(job, name), *known)


@dataclass(frozen=True)
class _Space:
    name: str
    settings: FeaturesParams
    network: FeatureSpace
    statistics: Statistics
    manifold: Manifold

    def variable(self, measure: str) -> str:
        """As `evaluate_images` names it, after `jackknife_`."""
        ending = "" if self.name == self.settings.space else f"_{self.name}"
        return f"jackknife_{measure}{ending}"

    def deviations(self, images: ImageSet, blocks: int) -> dict[str, list[float]]:
        settings = self.settings
        points = extract(self.network, images, settings.batch_size)
        found = deviations(
            points.to(self.statistics.mean.device),
            blocks,
            statistics=self.statistics,
            manifold=self.manifold,
            neighbours=settings.neighbours,
            manifold_images=settings.manifold_images,
        )
        return {self.variable(measure): values.tolist() for measure, values in found.items()}
