"""The class of machine that made numbers: what they may depend on, and no name of a host."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ocm_core.pipeline.job import Job


def machine_class(job: Job) -> str:
    """`x86_64, CPU`, or the name of the graphics card."""
    device = torch.cuda.get_device_name() if job.device == "cuda" else job.device.upper()
    return f"{platform.machine()}, {device}"
