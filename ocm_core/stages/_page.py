"""What the pages of all experiments tell of their making: curves, sizes, provenance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ocm_core.params.choices import choices
from ocm_core.params.resolved import resolved_file
from ocm_core.pipeline.number_provenance import NumberProvenance
from ocm_core.pipeline.staleness import fingerprint, source_files
from ocm_core.pipeline.table import Task, tasks
from ocm_core.report.figures.training_curves import LossCurve
from ocm_core.report.page.git_history import last_change
from ocm_core.report.page.provenance import Provenance, provenance
from ocm_core.training.state import load_curve

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

_CURVES = {
    "vae": "by its own loss",
    "score": "by denoising",
    "heads": "on the {} score",
    "classifier": "by cross-entropy",
}


def curves(job: Job) -> dict[str, LossCurve]:
    return {
        title.format(name.removeprefix(f"{stage}/")): load_curve(folder)
        for stage, title in _CURVES.items()
        for name, folder in job.inputs.items()
        if name.startswith(f"{stage}/")
    }


def head_parameters(job: Job) -> dict[str, int]:
    return {
        label: count
        for name, manifest in manifests(job).items()
        if name.startswith("heads/")
        for label, count in manifest["notes"]["parameters"].items()
    }


def replaced_baselines(job: Job) -> dict[str, int]:
    """By score: at how many t a head's baseline is a Gaussian's, its own not being positive."""
    return {
        name.removeprefix("heads/"): manifest["notes"].get("baseline_entries_from_gaussian", 0)
        for name, manifest in manifests(job).items()
        if name.startswith("heads/")
    }


def page_provenance(job: Job) -> Provenance:
    experiment = job.experiment
    versions = {k: v for m in manifests(job).values() for k, v in m["versions"].items()}
    sources = {file for task in tasks(experiment) for file in source_files(experiment, task)}
    commit = last_change({*sources, resolved_file(experiment.name)})
    facts = fingerprint(experiment, Task(job.stage, job.part))
    machines = {m["notes"]["machine"] for m in manifests(job).values() if "machine" in m["notes"]}
    return provenance(experiment, commit, facts, versions, choices(experiment.name), machines)


def number_provenance(job: Job, metrics: str) -> str:
    """What made the numbers of the metrics file, whose text is given."""
    return NumberProvenance.of(job.experiment, metrics).text


def manifests(job: Job) -> dict[str, Any]:
    return {
        name: json.loads((folder / "manifest.json").read_text())
        for name, folder in job.inputs.items()
    }
