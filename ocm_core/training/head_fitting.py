"""Covariance heads on a frozen score network.

Heads share no parameters, and all read the same draws, so that training several at once equals
training each alone, while one pass of the trunk and one product per probe serve them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from ocm_core.covariance.learned import LearnedMethod, TrainingBatch
from ocm_core.diffusion.denoiser import Denoiser
from ocm_core.diffusion.gaussian import Decoder
from ocm_core.rng.batches import BatchRng
from ocm_core.shapes import PerSample, Times
from ocm_core.training.batches import Items, NoisyDraws, noisy_draws
from ocm_core.training.loop import Objective


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

    def draw(self, rng: BatchRng, t: Times | None = None) -> NoisyDraws:
        """Draw at these timesteps or at random ones, with as many probes as any method reads."""
        probes = max((method.training_probes for method in self.methods.values()), default=0)
        return noisy_draws(self.items, self.denoiser.schedule, rng, t, probes)

    def losses_on(self, drawn: NoisyDraws) -> dict[str, PerSample]:
        batch = self.predict(drawn)
        return {label: method.loss(batch) for label, method in self.methods.items()}

    def predict(self, drawn: NoisyDraws) -> TrainingBatch:
        """Evaluate the trunk once, with a graph to x_t only if some target needs the Jacobian."""
        graph, x = len(drawn.probes) > 0, drawn.noisy(self.denoiser.schedule)
        with torch.set_grad_enabled(graph):
            x = x.detach().requires_grad_(graph)
            prediction = self.denoiser.predict(x, drawn.t, drawn.label)
        return TrainingBatch(prediction, drawn.x0, drawn.eps, self.decoder, drawn.probes)
