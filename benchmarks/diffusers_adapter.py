"""A step through the adapter of a diffusers model against that model's own forward pass.

The model has the sizes of google/ddpm-cifar10-32, with random weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from diffusers.models.unets.unet_2d import UNet2DModel
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from torch import Tensor

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved
from benchmarks.networks import drawn
from ocm_core import api
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.covariance.ocm import Method
from ocm_core.diffusion.denoiser import Denoiser

REPEATS = 9
T = 500
SHAPE = (4, 3, 32, 32)
SIZES = {
    "sample_size": 32,
    "block_out_channels": (128, 256, 256, 256),
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 2,
    "attention_head_dim": None,
}


def model_and_denoiser() -> tuple[UNet2DModel, Denoiser]:
    """Both share their weights; the denoiser has a `complex` head of `ocm`."""
    model = UNet2DModel(**SIZES).eval().requires_grad_(False)
    bare = api.wrap(model, DDPMScheduler())
    head = CovarianceHead(drawn(bare.network.make_head("complex"))).requires_grad_(False)
    return model, Denoiser(bare.network, bare.schedule, bare.time, {"ocm": head})


@torch.no_grad()
def own(model: UNet2DModel, x: Tensor) -> Tensor:
    output: Tensor = model(x, torch.full((len(x),), T - 1)).sample
    return output


@torch.no_grad()
def adapted(denoiser: Denoiser, x: Tensor) -> Tensor:
    return denoiser.predict(x, T).eps


@torch.no_grad()
def with_head(denoiser: Denoiser, x: Tensor) -> Tensor:
    return Method(label="ocm").c(denoiser.predict(x, T))


def _measured(step: Callable[[Denoiser, Tensor], Tensor]) -> Measured:
    (model, denoiser), x = model_and_denoiser(), torch.zeros(SHAPE)
    ours, baseline = partial(step, denoiser, x), partial(own, model, x)
    return interleaved(ours, baseline, REPEATS).measured(batch=SHAPE[0])


BENCHMARKS = [
    Benchmark(
        name="diffusers_adapter",
        what="time of ε̂ through the adapter, a UNet2DModel for 32×32",
        baseline="diffusers' own forward pass",
        target=1.02,
        measure=partial(_measured, adapted),
    ),
    Benchmark(
        name="diffusers_head",
        what="time of ε̂ and c with a `complex` head, a UNet2DModel for 32×32",
        baseline="diffusers' own forward pass",
        target=1.06,
        measure=partial(_measured, with_head),
    ),
]
