"""How a frozen network is run: precision, memory layout, compilation. Only rounding changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from ocm_core.diffusion.denoiser import Denoiser, forward


def executed(
    denoiser: Denoiser,
    *,
    precision: Literal["float32", "tf32", "bfloat16"],
    channels_last: bool,
    compiled: bool,
) -> Denoiser:
    """The denoiser, run so. Its network is changed in place; heads stay as they are.

    The precision of products of matrices in float32 is the process's, and set for all of it.
    """
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if channels_last:
        denoiser.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return replace(
        denoiser,
        precision=torch.bfloat16 if precision == "bfloat16" else torch.float32,
        forward=torch.compile(forward) if compiled else forward,
    )
