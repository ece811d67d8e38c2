"""Write the data set into the Zarr store."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ocm_core.data import store

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def run(job: Job) -> None:
    data = job.experiment.data
    splits = import_module(f"ocm_core.data.{data.kind}").draw(data)
    store.write(job.folder, splits)
    job.note(shapes={split: list(values.shape) for split, values in splits.items()})
