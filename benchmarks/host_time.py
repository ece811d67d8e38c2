"""What the host does for a sampling step while a GPU computes: its time, and how often it waits.

The loop is the real one, with a network that does nothing and a head. Noise is drawn for whole
batches, by the other thread, and handed over; of each draw the loop then goes on with one element
only, so that operations cost what it takes to call them, and not their arithmetic, which is the
GPU's. Timed is the CPU time of the main thread. The other thread's time is in the details: it is
hidden as long as it is below the time of the network.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import ClassVar

import torch
from torch import Tensor, nn

from benchmarks.interface import Benchmark, Measured
from benchmarks.synchronisations import META, MetaNoise, Synchronisations
from ocm_core import covariance
from ocm_core.checkpoints.registry import CHECKPOINTS
from ocm_core.covariance.interface import Clip, ClipCounter
from ocm_core.covariance.learned import CovarianceHead
from ocm_core.diffusion import schedule as schedules
from ocm_core.diffusion import timesteps as rules
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.diffusion.kernels.ddpm import Ddpm
from ocm_core.diffusion.score_network import ScoreNetwork, TrunkFeatures
from ocm_core.diffusion.transition import transition
from ocm_core.likelihood.bound import Likelihood
from ocm_core.params.compose import compose
from ocm_core.prefetch import in_background
from ocm_core.rng.noise import Noise, SampleNoise
from ocm_core.sampling.recipe import Recipe

REPEATS = 5
CLIP = Clip(x0=1.0, c_max=1.0)


class Nothing(nn.Module):
    def forward(self, features: TrunkFeatures) -> Tensor:
        return features.hidden


class NoNetwork(ScoreNetwork):
    """ε̂ = x_t."""

    head_kinds: ClassVar[tuple[str, ...]] = ("nothing",)
    out_channels_per_input = 1

    def features(self, x: Tensor, time: Tensor, label: Tensor | None = None) -> TrunkFeatures:
        return TrunkFeatures(x, time)

    def readout(self, features: TrunkFeatures) -> Tensor:
        return features.hidden

    def _build_head(self, kind: str, **sizes: int) -> nn.Module:
        return Nothing()


@dataclass(frozen=True)
class FirstElement:
    """Of each draw of a whole batch, its first element."""

    noise: Noise

    def normal(self) -> Tensor:
        return self.noise.normal()[:1, :1, :1, :1]

    def signs(self) -> Tensor:
        return self.noise.signs()[:1, :1, :1, :1]


@dataclass(frozen=True)
class HostStep:
    shape: tuple[int, ...]
    batch: int
    steps: int

    @property
    def denoiser(self) -> Denoiser:
        network = NoNetwork()
        heads = {"ocm": CovarianceHead(network.make_head("nothing"))}
        return Denoiser(network, schedules.linear(1000), heads=heads)

    def draw(self) -> None:
        noise = FirstElement(SampleNoise(0, range(self.batch), self.shape, draws=self.steps))
        timesteps, method = rules.even(1000, self.steps), covariance.build("ocm")
        recipe = Recipe(timesteps, method, Ddpm(), clip=CLIP, final_sigma=0.1)
        recipe.draw(self.denoiser, noise)

    def measure(self) -> Measured:
        self.draw()
        found = [self._milliseconds() for _ in range(REPEATS)]
        main, drawing = ([pair[i] for pair in found] for i in (0, 1))
        return Measured(
            median(main),
            min(main),
            max(main),
            {
                "batch": self.batch,
                "shape": list(self.shape),
                "steps": self.steps,
                "milliseconds_of_drawing_in_the_other_thread": median(drawing),
            },
        )

    def _milliseconds(self) -> tuple[float, float]:
        """A step's CPU time of the main thread and of the other one."""
        start = time.thread_time(), in_background(time.thread_time).result()
        self.draw()
        stop = time.thread_time(), in_background(time.thread_time).result()
        main, drawing = (1e3 * (b - a) / self.steps for a, b in zip(start, stop, strict=True))
        return main, drawing


def _synchronisations() -> Measured:
    """Of the real UNet of CIFAR10: sampling steps, and the bound's terms of one pass."""
    checkpoint, steps = CHECKPOINTS["cifar10_ls"], 3
    with torch.device(META):
        network = checkpoint.network().eval().requires_grad_(False)
        heads = {"ocm": CovarianceHead(network.make_head(checkpoint.head))}
    schedule = schedules.build(checkpoint.schedule, checkpoint.steps)
    denoiser = Denoiser(network, schedule, checkpoint.time, heads)
    noise = MetaNoise(2, compose(checkpoint.name).shape)
    method, counters = covariance.build("ocm"), {"ocm": ClipCounter()}
    with Synchronisations() as waits:
        Recipe(rules.even(1000, steps), method, Ddpm(), clip=CLIP).draw(denoiser, noise)
        bound = Likelihood(denoiser, {"ocm": method}, Decoder(256), CLIP)
        terms = bound.evaluate(noise.normal(), 500, noise, None, counters)
        for s in (0, 250):
            terms(transition(schedule, s, 500), ["ocm"], None)
    return Measured.exactly(len(waits.found) / (steps + 1), steps=steps + 1)


CIFAR10 = HostStep((3, 32, 32), 512, 50)
LARGE = HostStep((3, 256, 256), 64, 12)

BENCHMARKS = [
    *(
        Benchmark(
            name=f"host_step_{name}",
            what=f"main thread's time of a sampling step, {step.batch} images of {side}×{side}",
            baseline="none: CPU milliseconds of the main thread, without the network",
            target=target,
            measure=partial(HostStep.measure, step),
            unit="ms",
        )
        for name, step, side, target in (("cifar10", CIFAR10, 32, 2.0), ("256", LARGE, 256, 5.0))
    ),
    Benchmark(
        name="synchronisations",
        what="times that the host waits for the device in a step of sampling or of the likelihood",
        baseline="none: counted on the meta device, UNet of CIFAR10",
        target=0.0,
        measure=_synchronisations,
        unit="a step",
    ),
]
