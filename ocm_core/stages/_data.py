"""The items that `encode` has written, as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocm_core.data import store

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def read_items(job: Job, split: str) -> Tensor:
    return torch.from_numpy(store.read(job.inputs["encode/all"], split))
