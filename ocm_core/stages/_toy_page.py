"""What the page of a toy experiment shows, gathered from the artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import xarray as xr

from ocm_core.artifacts.chains import optimal_chains
from ocm_core.artifacts.encoded import open_split
from ocm_core.artifacts.samples import read_samples
from ocm_core.cells import cells, parts
from ocm_core.diffusion.mixture import mixture
from ocm_core.report import toy_page
from ocm_core.report.figures.densities import PlanePoints
from ocm_core.report.figures.sample_panels import SHOWN_KINDS, PlaneSamples
from ocm_core.report.page.document import Page
from ocm_core.report.statistics.selections import SHEET_STEPS, nearest_steps
from ocm_core.schema.datasets import MixtureData
from ocm_core.stages._page import curves, head_parameters, page_provenance, replaced_baselines

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def page(job: Job, results: xr.Dataset) -> Page:
    experiment = job.experiment
    shown = toy_page.ToyPageInputs(
        experiment=experiment,
        dataset=results,
        truth=mixture(cast(MixtureData, experiment.data)),
        test=open_split(job, "test").all(),
        samples=_samples(job),
        curves=curves(job),
        head_parameters=head_parameters(job),
        replaced_baselines=replaced_baselines(job),
        chains=optimal_chains(job, experiment.network.scores[-1]),
        provenance=page_provenance(job),
    )
    return toy_page.page(shown)


def _samples(job: Job) -> PlaneSamples:
    """What the page shows: a few methods and steps, with the last score and the first seed."""
    experiment = job.experiment
    score, seed = experiment.network.scores[-1], experiment.sample.seeds[0]
    steps = nearest_steps(SHEET_STEPS, {cell.steps for cell in cells(experiment)})
    chosen: dict[tuple[str, int], dict[str, PlanePoints]] = {}
    for part, group in parts(experiment).items():
        for cell in group:
            kind = experiment.methods[cell.method].kind
            shown = kind in SHOWN_KINDS and cell.steps in steps
            if shown and (cell.score, cell.seed) == (score, seed):
                drawn = read_samples(job.inputs[f"sample/{part}"], cell)
                points = drawn.all().numpy()
                chosen.setdefault((cell.sampler, cell.steps), {})[cell.method] = points
    return chosen
