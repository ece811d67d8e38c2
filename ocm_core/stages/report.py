"""Turn the results into the page, the metrics that commits are compared by, and plot data."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING

import xarray as xr

from ocm_core.artifacts.results import FILE, load
from ocm_core.report import metrics, plot_data
from ocm_core.report.page.render import render
from ocm_core.stages._page import number_provenance

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    results = _results(job)
    nested = metrics.nested(results)
    text = json.dumps(nested, indent=2) + "\n"
    job.outputs["metrics"].write_text(text)
    job.outputs["provenance"].write_text(number_provenance(job, text))
    for name, table in plot_data.frames(results).items():
        job.outputs[f"{name}.csv"].write_text(table.csv)
    kind = "toy" if job.experiment.data.kind == "mixture" else "image"
    page = import_module(f"ocm_core.stages._{kind}_page").page(job, results)
    job.outputs["html"].write_text(render(page), "utf-8")


def _results(job: Job) -> xr.Dataset:
    """All evaluations in one dataset, with the methods in the order of the parameters."""
    merged = xr.merge(
        [load(folder) for folder in job.inputs.values() if (folder / FILE).exists()],
        join="outer",
        compat="no_conflicts",
    )
    present = [label for label in job.experiment.methods if label in merged["method"]]
    return merged.sel({"method": present})
