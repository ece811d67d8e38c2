"""The sampler against a plain loop over the same network; and ways to run the network.

The plain loop is a DDPM step written out for the head `ocm`, with noise from torch. Memory layout,
precision and compilation concern the network only, and are measured without a head.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved
from benchmarks.networks import cifar10_unet, small_unet
from ocm_core import covariance
from ocm_core.covariance.interface import Clip
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser, executed
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.timesteps import Timesteps
from ocm_core.rng.noise import Noise, SampleNoise
from ocm_core.sampling.recipe import Recipe

BATCH, STEPS, REPEATS = 1, 10, 5
SMALL_WIDTH, SMALL_BATCH = 96, 16
AS_IT_IS: dict[str, Any] = {"precision": "float32", "channels_last": False, "compiled": False}


@dataclass(frozen=True)
class SamplingLoop:
    denoiser: Denoiser
    shape: tuple[int, ...]
    batch: int
    timesteps: Timesteps
    method: str = "ocm"

    def stage(self, noise: Noise | None = None) -> Tensor:
        drawn = SampleNoise(0, range(self.batch), self.shape)
        method, clip = covariance.build(self.method), Clip(x0=1.0, c_max=1.0)
        recipe = Recipe(self.timesteps, method, Ddpm(), clip=clip)
        return recipe.draw(self.denoiser, noise or drawn).x

    @torch.no_grad()
    def plain(self, normal: Callable[[], Tensor] | None = None) -> Tensor:
        network, head = self.denoiser.network, self.denoiser.heads["ocm"]
        schedule, time = self.denoiser.schedule, self.denoiser.time
        draw = normal or (lambda: torch.randn(self.batch, *self.shape))
        x = draw()
        for s, t in reversed(list(zip((0, *self.timesteps[:-1]), self.timesteps, strict=True))):
            features = network.features(x, time(torch.full((self.batch,), t)))
            eps = network.readout(features)
            ab_t, ab_s, b_t, b_s = schedule.alpha_bar[t], schedule.alpha_bar[s], *schedule.b[[t, s]]
            ab_st = ab_t / ab_s
            b_st = 1 - ab_st
            x0 = ((x - sqrt(b_t) * eps) / sqrt(ab_t)).clamp(-1, 1)
            a = sqrt(ab_s) * b_st / b_t
            mean: Tensor = a * x0 + sqrt(ab_st) * b_s / b_t * x
            if s == 0:
                return mean
            c = (b_t / ab_t * (1 + head(features))).clamp(0, 1)
            x = mean + (b_st * b_s / b_t + a**2 * c).sqrt() * draw()
        raise AssertionError("a timesteps ends at 0")


def _loop() -> Measured:
    denoiser, net, shape = cifar10_unet()
    able = replace(denoiser, heads={"ocm": CovarianceHead(net)})
    cell = SamplingLoop(able, shape, BATCH, rules.even(1000, STEPS))
    compared = interleaved(cell.stage, cell.plain, REPEATS)
    return compared.measured(batch=BATCH, steps=STEPS, network="UNet of CIFAR10")


def _variants(plain: Denoiser) -> dict[str, Denoiser]:
    choices: dict[str, dict[str, Any]] = {
        "channels_last": {"channels_last": True},
        "bfloat16": {"precision": "bfloat16"},
    }
    if shutil.which("c++"):
        choices["compiled"] = {"compiled": True}
    return {
        name: executed(replace(plain, network=deepcopy(plain.network)), **(AS_IT_IS | choice))
        for name, choice in choices.items()
    }


def _execution() -> Measured:
    network = small_unet(SMALL_WIDTH)
    plain = Denoiser(network, schedules.linear(1000))
    shape, timesteps = (1, 8, 8), rules.even(1000, STEPS)
    base = SamplingLoop(plain, shape, SMALL_BATCH, timesteps, "beta")
    effects = {
        name: interleaved(replace(base, denoiser=variant).stage, base.stage, REPEATS)
        for name, variant in _variants(plain).items()
    }
    best = min(effects.values(), key=lambda compared: compared.ratio).measured()
    told = {name: compared.ratio for name, compared in effects.items()}
    return replace(best, details={**best.details, "effects": told, "batch": SMALL_BATCH})


BENCHMARKS = [
    Benchmark(
        name="sampling_loop",
        what="`sample` of one cell, UNet of CIFAR10",
        baseline="a plain loop over the same network",
        target=1.03,
        measure=_loop,
    ),
    Benchmark(
        name="sampling_execution",
        what="the best of channels-last, bfloat16 and compilation, a UNet of width 96",
        baseline="float32, run as it is",
        target=1.0,
        measure=_execution,
    ),
]
