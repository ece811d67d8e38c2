"""Covariance heads on a frozen score network.

Heads do not share parameters, so that training several at once equals training each alone, while
one pass of the trunk serves them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from ocm_core.covariance.learned import LearnedMethod, TrainingBatch
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.rng.batches import BatchRng
from ocm_core.shapes import PerSample
from ocm_core.training.batches import Items, NoisyBatch, noisy_batch


@dataclass(frozen=True)
class HeadFitting:
    """Each method's own loss on the features of the frozen trunk."""

    denoiser: Denoiser
    methods: Mapping[str, LearnedMethod]
    items: Items
    decoder: Decoder

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {label: self.denoiser.heads[label] for label in self.methods}

    def losses(self, rng: BatchRng, rows: slice) -> dict[str, PerSample]:
        noisy = noisy_batch(self.items, self.denoiser.schedule, rng, rows)
        batch = self.predict(noisy, rng, rows)
        return {label: method.loss(batch) for label, method in self.methods.items()}

    def predict(self, noisy: NoisyBatch, rng: BatchRng, rows: slice) -> TrainingBatch:
        """One pass of the trunk, with a graph to x_t only if some target needs the Jacobian."""
        graph = any(method.trains_on_jacobian for method in self.methods.values())
        with torch.set_grad_enabled(graph):
            x = noisy.x.detach().requires_grad_(graph)
            prediction = self.denoiser.predict(x, noisy.t, noisy.label)
        return TrainingBatch(
            prediction=prediction,
            x0=noisy.x0,
            eps=noisy.eps,
            probe=lambda: rng.signs(tuple(noisy.x0.shape[1:]))[rows],
            decoder=self.decoder,
        )
