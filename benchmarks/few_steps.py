"""What few steps cost: order 2 beside order 1, and a scheduler of diffusers beside its own loop."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved
from benchmarks.networks import cifar10_unet
from ocm_core import covariance
from ocm_core.covariance.interface import Clip
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.kernels.ddim import Ddim
from ocm_core.rng.noise import SampleNoise
from ocm_core.sampling.diffusers_solver import DiffusersSolver
from ocm_core.sampling.recipe import Recipe
from ocm_core.schema.experiment import Order

from diffusers import UniPCMultistepScheduler  # isort: skip  # after what makes it importable

BATCH, STEPS, REPEATS = 1, 10, 9


@dataclass(frozen=True)
class FewSteps:
    denoiser: Denoiser
    shape: tuple[int, ...]
    order: Order = 1

    @property
    def noise(self) -> SampleNoise:
        return SampleNoise(0, range(BATCH), self.shape)

    def recipe(self) -> Tensor:
        visited = rules.even(self.denoiser.schedule.steps, STEPS)
        recipe = Recipe(visited, covariance.build("delta"), Ddim(), self.order, clip=Clip(x0=1.0))
        return recipe.draw(self.denoiser, self.noise).x

    def solver(self) -> Tensor:
        solver = DiffusersSolver("UniPCMultistepScheduler", {}, self.denoiser.schedule, STEPS, 1.0)
        return solver.draw(self.denoiser, self.noise).x

    @torch.no_grad()
    def their_loop(self) -> Tensor:
        """As their documentation writes it, on the bare network."""
        network, time = self.denoiser.network, self.denoiser.time
        betas = self.denoiser.schedule.betas[1:].tolist()
        cls: Any = UniPCMultistepScheduler  # which has no types
        scheduler = cls(trained_betas=betas, thresholding=True)
        scheduler.set_timesteps(STEPS)
        x: Tensor = self.noise.normal()
        for t in scheduler.timesteps:
            eps = network(x, time(t.expand(BATCH) + 1))
            x = scheduler.step(eps, t, x).prev_sample
        return x


def _few() -> FewSteps:
    denoiser, _, shape = cifar10_unet()
    return FewSteps(denoiser, shape)


def _second_order() -> Measured:
    few = _few()
    compared = interleaved(replace(few, order=2).recipe, few.recipe, REPEATS)
    return compared.measured(batch=BATCH, steps=STEPS, network="UNet of CIFAR10")


def _their_scheduler() -> Measured:
    few = _few()
    compared = interleaved(few.solver, few.their_loop, REPEATS)
    return compared.measured(batch=BATCH, steps=STEPS, network="UNet of CIFAR10")


BENCHMARKS = [
    Benchmark(
        name="sampling_second_order",
        what="ten DDIM steps of order 2, UNet of CIFAR10",
        baseline="of order 1",
        target=1.01,
        measure=_second_order,
    ),
    Benchmark(
        name="sampling_diffusers",
        what="UniPC of diffusers as a sampler, ten evaluations, UNet of CIFAR10",
        baseline="diffusers' own loop",
        target=1.05,
        measure=_their_scheduler,
    ),
]
