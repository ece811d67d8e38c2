"""Training the heads of `ocm`, `sn` and `npr` together, against one training run per head.

The baseline backpropagates the loss of each head through the whole trunk, as published. With this
project's own step, separate runs cost about 2 + 1 + 1 forward passes and a joint one costs 2, so no
more than a half can be saved; that ratio is recorded as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from benchmarks.interface import Benchmark, Measured
from benchmarks.measuring import interleaved
from benchmarks.networks import cifar10_unet
from ocm_core import covariance
from ocm_core.covariance.learned import CovarianceHead, LearnedMethod
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder, sum_dims
from ocm_core.rng.batches import BatchRng
from ocm_core.training.batches import InMemory, noisy_draws
from ocm_core.training.head_fitting import HeadFitting

LABELS = ("ocm", "sn", "npr")
BATCH = 2
REPEATS = 5


@dataclass(frozen=True)
class HeadTraining:
    denoiser: Denoiser
    x0: Tensor

    @classmethod
    def on(cls, denoiser: Denoiser, kind: str, x0: Tensor) -> HeadTraining:
        heads: dict[str, nn.Module] = {
            label: CovarianceHead(denoiser.network.make_head(kind)) for label in LABELS
        }
        return cls(replace(denoiser, heads=heads), x0)

    def together(self) -> dict[str, Tensor]:
        return self._step(LABELS)

    def one_by_one(self) -> dict[str, Tensor]:
        """Separate runs of this project's own step."""
        return {label: self._step([label])[label] for label in LABELS}

    def published(self) -> dict[str, Tensor]:
        return {label: self._published_step(label) for label in LABELS}

    def _step(self, labels: Sequence[str]) -> dict[str, Tensor]:
        """Losses and gradients of one iteration."""
        self.denoiser.network.requires_grad_(False)
        methods = {label: cast(LearnedMethod, covariance.build(label)) for label in labels}
        fitting = HeadFitting(self.denoiser, methods, InMemory(self.x0), Decoder(None))
        losses = fitting.losses(BatchRng(0, 0, len(self.x0)))
        torch.autograd.backward(torch.stack([loss.sum() for loss in losses.values()]).sum())
        return {label: loss.detach() for label, loss in losses.items()}

    def _published_step(self, label: str) -> Tensor:
        """The raw output against -√b v ⊙ (Jᵀ v), ε² or (ε - ε̂)²; the trunk is in the graph."""
        network, schedule = self.denoiser.network.requires_grad_(True), self.denoiser.schedule
        rng = BatchRng(0, 0, len(self.x0))
        drawn = noisy_draws(InMemory(self.x0), schedule, rng)
        x = drawn.noisy(schedule).requires_grad_(label == "ocm")
        features = network.features(x, self.denoiser.time(drawn.t))
        predicted = network.readout(features)
        if label == "ocm":
            v = rng.signs(tuple(x.shape[1:]))
            (product,) = torch.autograd.grad((v * predicted).sum(), x, retain_graph=True)
            target = -schedule.at(schedule.b, drawn.t, x).sqrt() * v * product
        else:
            target = drawn.eps**2 if label == "sn" else (drawn.eps - predicted.detach()) ** 2
        loss = sum_dims((self.denoiser.heads[label](features) - target) ** 2)
        torch.autograd.backward(loss.sum())
        return loss.detach()


def _time() -> Measured:
    denoiser, _, shape = cifar10_unet()
    heads = HeadTraining.on(denoiser, "simple", torch.randn(BATCH, *shape))
    compared = interleaved(heads.together, heads.published, REPEATS)
    own = interleaved(heads.together, heads.one_by_one, REPEATS)
    return compared.measured(
        batch=BATCH, network="UNet of CIFAR10", ratio_to_own_runs=own.measured().ratio
    )


BENCHMARKS = [
    Benchmark(
        name="all_heads",
        what="a training step of the heads ocm, sn and npr",
        baseline="a step of each in a run of its own, its loss through the whole trunk",
        target=0.45,
        measure=_time,
    )
]
