"""What the page of an image experiment shows, gathered from the artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import xarray as xr

from ocm_core.artifacts.chains import optimal_chains
from ocm_core.artifacts.dataset import open_data
from ocm_core.artifacts.images import image_reader
from ocm_core.artifacts.samples import read_samples
from ocm_core.cells import cells, parts
from ocm_core.datasets.eight_bit import EightBitSplit
from ocm_core.features.interface import UInt8Images
from ocm_core.project import located
from ocm_core.report import image_page
from ocm_core.report.figures.sample_sheets import ImageSamples
from ocm_core.report.page.document import Page
from ocm_core.report.page.pictures import Pixels
from ocm_core.report.tables import published_results
from ocm_core.report.tables.cost import Cost
from ocm_core.report.tables.published_results import PublishedRow
from ocm_core.schema.block import require
from ocm_core.stages._page import (
    curves,
    head_parameters,
    manifests,
    page_provenance,
    replaced_baselines,
)

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job
    from ocm_core.schema.experiment import Experiment

PAPER = Path("reports/paper/results.csv")
_SHOWN = 36  # images of a sheet


def page(job: Job, results: xr.Dataset) -> Page:
    experiment = job.experiment
    notes = {name: manifest["notes"] for name, manifest in manifests(job).items()}
    guidance = min(cell.guidance for cell in cells(experiment))
    shown = image_page.ImagePageInputs(
        experiment=experiment,
        dataset=results,
        space=require(experiment.evaluate.features).space,
        count=experiment.sample.count,
        test_count=notes.get("evaluate_likelihood/all", {}).get("images", 0),
        loss_count=notes.get("evaluate_loss/all", {}).get("images", 0),
        head_parameters=head_parameters(job),
        replaced_baselines=replaced_baselines(job),
        provenance=page_provenance(job),
        curves=curves(job),
        chains=optimal_chains(job, experiment.network.scores[-1]),
        samples=_samples(job, guidance),
        sample_guidance=guidance,
        test=_data_images(job),
        cost=_cost(job),
        published=_published(experiment),
    )
    return image_page.page(shown)


def _published(experiment: Experiment) -> Sequence[PublishedRow]:
    paper = experiment.report.paper
    if paper is None:
        return published_results.load(located(PAPER), experiment.name)
    return published_results.load_bounds(located(PAPER), paper)


def _samples(job: Job, guidance: float) -> ImageSamples:
    """The last score, the first seed, the least guidance."""
    experiment, images_of = job.experiment, image_reader(job)
    score, seeds = experiment.network.scores[-1], experiment.sample.seeds
    wanted = (score, guidance, seeds[0])
    found = {}
    for part, group in parts(experiment).items():
        for cell in group:
            if (cell.score, cell.guidance, cell.seed) == wanted:
                drawn = read_samples(job.inputs[f"sample/{part}"], cell)
                pixels = images_of(drawn)[:_SHOWN]
                found[cell.sampler, cell.method, cell.steps] = _levels(pixels)
    return found


def _data_images(job: Job) -> Pixels:
    data = open_data(job)
    split = data.splits.get("test") or data.splits["train"]
    return _levels(EightBitSplit(split, require(data.levels))[:_SHOWN])


def _levels(pixels: UInt8Images) -> Pixels:
    """Grey images without their channel, colours last."""
    array = pixels.permute(0, 2, 3, 1).numpy()
    return array[..., 0] if array.shape[-1] == 1 else array


def _cost(job: Job) -> Cost | None:
    folder = job.inputs.get("evaluate_cost/all")
    return Cost.parse((folder / "cost.json").read_text()) if folder else None
