"""How a frozen network is run: precision, memory layout, compilation. Only rounding changes."""

from __future__ import annotations

from dataclasses import replace

import torch

from ocm_core.diffusion.denoiser import Denoiser, forward
from ocm_core.precision import Precision, set_precision


def executed(
    denoiser: Denoiser,
    *,
    precision: Precision,
    channels_last: bool,
    compiled: bool,
) -> Denoiser:
    """The denoiser, run so. Its network is changed in place; heads stay as they are."""
    if channels_last:
        denoiser.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return replace(
        denoiser,
        precision=set_precision(precision),
        forward=torch.compile(forward) if compiled else forward,
    )
