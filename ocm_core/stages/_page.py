"""What the pages of all experiments tell of their making: curves, sizes, provenance."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ocm_core.pipeline.state import fingerprint
from ocm_core.pipeline.table import Task
from ocm_core.report.curves import Curve
from ocm_core.report.provenance import provenance
from ocm_core.training.curve import load_curve

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

_CURVES = {
    "vae": "of the autoencoder",
    "score": "by denoising",
    "heads": "on the {} score",
    "classifier": "of the classifier",
}


def curves(job: Job) -> dict[str, Curve]:
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


def page_provenance(job: Job) -> Any:
    versions = {k: v for m in manifests(job).values() for k, v in m["versions"].items()}
    task = Task(job.stage, job.part)
    return provenance(job.experiment, fingerprint(job.experiment, task), versions)


def manifests(job: Job) -> dict[str, Any]:
    return {
        name: json.loads((folder / "manifest.json").read_text())
        for name, folder in job.inputs.items()
    }
