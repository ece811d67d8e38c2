"""A feature space of an experiment: its network, as fetched, installed or trained."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ocm_core.features.interface import FeatureSpace
from ocm_core.precision import set_precision
from ocm_core.schema.block import require

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job

CLASSIFIER_FILE = "classifier.safetensors"


def load_space(job: Job, name: str) -> FeatureSpace:
    """On a GPU its network runs in TF32, until somebody asks for another precision."""
    set_precision()
    settings = require(job.experiment.evaluate.features)
    module = import_module(f"ocm_core.features.{name}")
    space: FeatureSpace
    if name == "classifier":
        space = module.build(job.inputs["classifier/all"] / CLASSIFIER_FILE, job.device)
    elif name == "inception":
        folder, inside = job.inputs["fetch_features/all"], settings.reference is not None
        space = module.build(folder, job.device, resize_inside=inside)
    else:
        space = module.build(job.device)
    return space
