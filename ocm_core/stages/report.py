"""Turn the results into the page, the metrics that commits are compared by, and plot data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from ocm_core.data import store
from ocm_core.pipeline.cells import cells, parts
from ocm_core.pipeline.state import fingerprint
from ocm_core.pipeline.table import Task
from ocm_core.report import metrics, plot_data, toy
from ocm_core.report.curves import Curve
from ocm_core.report.page import render
from ocm_core.report.panels import SHOWN, Points, Samples
from ocm_core.report.provenance import provenance
from ocm_core.report.summary import headline_steps
from ocm_core.results import load
from ocm_core.stages import sample
from ocm_core.training.curve import load_curve

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    results = _results(job)
    nested = metrics.nested(results)
    job.outputs["metrics"].write_text(json.dumps(nested, indent=2) + "\n")
    for name, table in plot_data.frames(results).items():
        job.outputs[f"{name}.csv"].write_text(table.csv)
    job.outputs["html"].write_text(render(toy.page(_toy(job, results))), "utf-8")


def _results(job: Job) -> xr.Dataset:
    """All evaluations in one dataset, with the methods in the order of the parameters."""
    merged = xr.merge(
        [load(folder) for name, folder in job.inputs.items() if name.startswith("evaluate_")],
        join="outer",
        compat="no_conflicts",
    )
    present = [label for label in job.experiment.methods if label in merged["method"]]
    return merged.sel({"method": present})


def _toy(job: Job, results: xr.Dataset) -> toy.Toy:
    experiment = job.experiment
    manifests = {name: _manifest(folder) for name, folder in job.inputs.items()}
    versions = {k: v for manifest in manifests.values() for k, v in manifest["versions"].items()}
    return toy.Toy(
        experiment=experiment,
        results=results,
        truth=import_module(f"ocm_core.data.{experiment.data.kind}").mixture(experiment.data),
        test=store.read(job.inputs["encode/all"], "test"),
        samples=_samples(job),
        curves=_curves(job.inputs),
        head_parameters=_head_parameters(manifests),
        provenance=provenance(
            experiment, fingerprint(experiment, Task(job.stage, job.part)), versions
        ),
    )


def _samples(job: Job) -> Samples:
    """What the page shows: a few methods and steps, with the last score and the first seed."""
    experiment = job.experiment
    score, seed = experiment.network.scores[-1], experiment.sample.seeds[0]
    steps = headline_steps({cell.steps for cell in cells(experiment)})
    chosen: dict[tuple[str, int], dict[str, Points]] = {}
    for part, group in parts(experiment).items():
        for cell in group:
            shown = cell.method in SHOWN and cell.steps in steps
            if shown and (cell.score, cell.seed) == (score, seed):
                drawn = sample.read(job.inputs[f"sample/{part}"], cell).sel(seed=seed)
                chosen.setdefault((cell.sampler, cell.steps), {})[cell.method] = drawn["x"].values
    return chosen


def _curves(inputs: Mapping[str, Path]) -> dict[str, Curve]:
    titles = {"score": "by denoising", "heads": "on the {} score"}
    return {
        title.format(name.removeprefix(f"{stage}/")): load_curve(folder)
        for stage, title in titles.items()
        for name, folder in inputs.items()
        if name.startswith(f"{stage}/")
    }


def _head_parameters(manifests: Mapping[str, Any]) -> dict[str, int]:
    return {
        label: count
        for name, manifest in manifests.items()
        if name.startswith("heads/")
        for label, count in manifest["notes"]["parameters"].items()
    }


def _manifest(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text())
