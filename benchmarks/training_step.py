"""One OCM training step against the published way, in time and in added memory.

The published way: ε̂ with a graph, the gradient of v·score by automatic differentiation, and the
loss of the head backpropagated through the whole trunk. Here: the head reads detached features of a
frozen trunk. Losses and gradients are timed; the optimiser is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved, peak_bytes, seconds
from benchmarks.networks import cifar10_unet, dit_s2
from ocm_core import covariance
from ocm_core.covariance.learned import CovarianceHead, LearnedMethod
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder, sum_dims
from ocm_core.networks import enable_gradient_checkpointing
from ocm_core.rng.batches import BatchRng
from ocm_core.training.batches import InMemory
from ocm_core.training.head_fitting import HeadFitting

BATCH = 2
REPEATS = 5

Build = Callable[[], tuple[Denoiser, nn.Module, tuple[int, ...]]]


@dataclass(frozen=True)
class TrainingStep:
    """Both ways with the same network, head, images and random numbers."""

    denoiser: Denoiser
    head: nn.Module
    x0: Tensor

    @classmethod
    def on(cls, build: Build, batch: int = BATCH) -> TrainingStep:
        denoiser, net, shape = build()
        heads = {"ocm": CovarianceHead(net)}
        return cls(replace(denoiser, heads=heads), heads["ocm"], torch.randn(batch, *shape))

    @property
    def rng(self) -> BatchRng:
        return BatchRng(0, 0, len(self.x0))

    def forward(self) -> None:
        with torch.no_grad():
            self.denoiser.predict(self.x0, 500)

    def ours(self) -> Tensor:
        self.denoiser.network.requires_grad_(False)
        method = cast(LearnedMethod, covariance.build("ocm"))
        items = InMemory(self.x0)
        fitting = HeadFitting(self.denoiser, {"ocm": method}, items, Decoder(None))
        loss = fitting.losses(self.rng)["ocm"].sum() / len(self.x0)
        torch.autograd.backward(loss)
        return loss.detach()

    def published(self) -> Tensor:
        """Regress h on b_t v ⊙ ∇(v·score); the weights of the trunk get gradients, too."""
        network, schedule, rng = self.denoiser.network, self.denoiser.schedule, self.rng
        network.requires_grad_(True)
        x0 = self.x0[torch.from_numpy(rng.items(len(self.x0)))]
        t, eps = rng.times(schedule.steps), rng.normals(tuple(x0.shape[1:]))
        alpha_bar, b = (schedule.at(table, t, x0) for table in (schedule.alpha_bar, schedule.b))
        x = (alpha_bar.sqrt() * x0 + b.sqrt() * eps).requires_grad_(True)
        v = rng.signs(tuple(x0.shape[1:]))
        features = network.features(x, self.denoiser.time(t))
        score = -network.readout(features)[:, : x0.shape[1]] / b.sqrt()
        (product,) = torch.autograd.grad((v * score).sum(), x, retain_graph=True)
        loss = sum_dims((self.head(features) - b * v * product) ** 2).sum() / len(x0)
        torch.autograd.backward(loss)
        return loss.detach()


def _time(build: Build) -> Measured:
    steps = TrainingStep.on(build)
    compared = interleaved(steps.ours, steps.published, REPEATS)
    forward = min(seconds(steps.forward) for _ in range(REPEATS))
    return compared.measured(
        batch=BATCH,
        forward_seconds=forward,
        forward_passes=min(compared.ours) / forward,
        baseline_forward_passes=min(compared.baseline) / forward,
    )


def _memory(build: Build) -> Measured:
    """Gradients of the trunk are allocated before, so that they do not count for the baseline."""
    steps = TrainingStep.on(build)
    published, plain = peak_bytes(steps.published), peak_bytes(steps.ours)
    enable_gradient_checkpointing(steps.denoiser.network)
    ours = peak_bytes(steps.ours)
    return Measured.exactly(
        ours / published,
        batch=BATCH,
        bytes=ours,
        baseline_bytes=published,
        without_recomputing=plain / published,
        counted="peak of the CPU allocator above what is held before the step (torch's profiler)",
    )


def _pair(name: str, network: str, build: Build) -> list[Benchmark]:
    return [
        Benchmark(
            name=f"training_step_{name}",
            what=f"one OCM training step, {network}",
            baseline="ε̂ with graph, gradient of v·score, head's loss through the whole trunk",
            target=0.60,
            measure=lambda: _time(build),
            note="about 2.1 forward passes",
        ),
        Benchmark(
            name=f"training_memory_{name}",
            what=f"memory added by that step, recomputing blocks, {network}",
            baseline="the same published step",
            target=0.30,
            measure=lambda: _memory(build),
        ),
    ]


BENCHMARKS = [
    *_pair("unet", "UNet of CIFAR10", cifar10_unet),
    *_pair("dit", "DiT-S/2", dit_s2),
]
