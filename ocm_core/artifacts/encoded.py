"""The data set as `encode` has stored it: grey levels, points, or latents of an autoencoder.

Several jobs may have written parts of it; they are read as one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.store import reader
from ocm_core.store.layout import store_path

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def open_split(job: Job, split: str) -> reader.StoredSplit:
    return reader.open_split(_folders(job), split)


def unseen_split(job: Job) -> str:
    """The test split; of a data set without one, the training split."""
    stores = (store_path(folder, "test") for folder in _folders(job))
    return "test" if any(store.exists() for store in stores) else "train"


def read_rows(job: Job, split: str, rows: range, labelled: bool) -> tuple[Tensor, Tensor | None]:
    """Some items on the device, with their labels if they are wanted and there are any."""
    found = open_split(job, split)
    x0 = torch.from_numpy(found.read(rows)).to(job.device)
    if not labelled or found.labels is None:
        return x0, None
    return x0, torch.from_numpy(found.labels[rows.start : rows.stop]).to(job.device)


def read_split(job: Job, split: str) -> Tensor:
    return torch.from_numpy(open_split(job, split).all())


def _folders(job: Job) -> list[Path]:
    return [folder for name, folder in job.inputs.items() if name.startswith("encode/")]
