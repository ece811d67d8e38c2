"""Covariance heads on a frozen score network.

Heads share no parameters, and all read the same draws, so that training several at once equals
training each alone, while one pass of the trunk and one product per probe serve them all.
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
from ocm_core.shapes import Batch, PerSample
from ocm_core.training.batches import Items, NoisyBatch, NoisyDraws, noisy_draws
from ocm_core.training.objective import Objective


@dataclass(frozen=True)
class HeadFitting(Objective[NoisyDraws]):
    """Each method's own loss on the features of the frozen trunk."""

    denoiser: Denoiser
    methods: Mapping[str, LearnedMethod]
    items: Items
    decoder: Decoder

    @property
    def networks(self) -> Mapping[str, nn.Module]:
        return {label: self.denoiser.heads[label] for label in self.methods}

    @property
    def probes(self) -> int:
        """Return as many probes as the method needs that reads most."""
        return max((method.training_probes for method in self.methods.values()), default=0)

    def draw(self, rng: BatchRng) -> NoisyDraws:
        return noisy_draws(self.items, self.denoiser.schedule, rng, probes=self.probes)

    def losses_on(self, drawn: NoisyDraws) -> dict[str, PerSample]:
        batch = self.predict(drawn.noisy(self.denoiser.schedule), drawn.probes)
        return {label: method.loss(batch) for label, method in self.methods.items()}

    def predict(self, noisy: NoisyBatch, probes: tuple[Batch, ...]) -> TrainingBatch:
        """One pass of the trunk, with a graph to x_t only if some target needs the Jacobian."""
        graph = any(method.trains_on_jacobian for method in self.methods.values())
        with torch.set_grad_enabled(graph):
            x = noisy.x.detach().requires_grad_(graph)
            prediction = self.denoiser.predict(x, noisy.t, noisy.label)
        return TrainingBatch(
            prediction=prediction,
            x0=noisy.x0,
            eps=noisy.eps,
            decoder=self.decoder,
            probes=probes,
        )
