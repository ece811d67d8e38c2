"""Compute the disk space that an experiment's data and samples take.

Stores are not compressed, so their sizes follow from the parameters. Networks, heads and features
are not counted, nor is DVC's cache, which holds a second copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ocm_core.cells import cells_of
from ocm_core.errors import OcmError
from ocm_core.pipeline.stage import Task
from ocm_core.pipeline.state import UP_TO_DATE
from ocm_core.schema.experiment import Experiment

FLOAT32, INT64 = 4, 8  # bytes


def to_write(experiment: Experiment, states: Mapping[Task, str]) -> dict[str, int | None]:
    """Return the bytes that are still to be written, by stage; None where nothing says how many."""
    waiting = [task for task, state in states.items() if state != UP_TO_DATE]
    space: dict[str, int | None] = {}
    if any(task.stage == "encode" for task in waiting):
        space["encode"] = encode_bytes(experiment)
    samples = sum(sample_bytes(experiment, task) for task in waiting if task.stage == "sample")
    return space | ({"sample": samples} if samples else {})


def sample_bytes(experiment: Experiment, task: Task) -> int:
    """Return the bytes of the samples of a task."""
    cells = len(cells_of(experiment, task.part))
    return cells * experiment.sample.count * prod(experiment.shape) * FLOAT32


def encode_bytes(experiment: Experiment) -> int | None:
    """Return the bytes of the encoded data set; None if its size is not declared."""
    latent = experiment.encode.latent
    try:
        sizes = experiment.data.count_items()
    except (NotImplementedError, OcmError):  # it does not declare them, or has no files yet
        return None
    flipped = sizes.get("train", 0) if experiment.encode.flips else 0
    width = FLOAT32 if experiment.levels is None else 1
    kept = 2 if latent and latent.posterior == "keep" else 1  # mean and deviation
    label = INT64 if experiment.data.classes else 0
    item = kept * prod(experiment.shape) * width + label + INT64  # and the index
    text = latent.text if latent else None
    prompts = (experiment.data.classes + 1) * text.tokens * text.width * FLOAT32 if text else 0
    return (sum(sizes.values()) + flipped) * item + prompts
