"""The golden networks as denoisers, with the published time conventions."""

from __future__ import annotations

from functools import cache

import torch

from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule
from ocm_core.diffusion.denoiser import Denoiser, TimeConvention
from tests.networks.golden import golden

# the goldens' names for two of our methods
OURS = {"small": "beta_tilde", "big": "beta"}


@cache
def golden_denoiser(network: str, tag: str, shifted: bool) -> Denoiser:
    """The golden file has one head; it answers under the name of every method."""
    kind, steps = tag.split("_")
    score, head = golden(network).load()
    wrapped = CovarianceHead(head) if head is not None else None
    heads = {name: wrapped for name in ("ocm", "sn", "npr", "iddpm")} if wrapped else {}
    return Denoiser(
        score.requires_grad_(False),
        schedule.build(kind, int(steps)),
        TimeConvention(shift=int(shifted), scale=1000 / int(steps)),
        heads,
    )


def case_denoiser(case: dict) -> Denoiser:
    return golden_denoiser(case["network"], case["schedule"], bool(case["shift1"]))


torch.set_num_threads(1)
